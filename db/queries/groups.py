"""Groups of repeats: finished runs of equal configuration, devices and provenance."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from sqlalchemy import ColumnElement, Text, cast, func, select
from sqlalchemy.orm import Session

from db.models import Attempt, Run
from db.queries.runs import RunFacts

MAX_RUNS = 5_000
"""Only this many newest runs are compared; in a larger record, filter by recipe."""

_MEDIAN_OF = re.compile(r"median of \d{1,6}")


@dataclass(frozen=True, kw_only=True)
class Repeat:
    """One run of a group."""

    run_id: str
    name: str | None
    num_attempts: int
    wall_clock_s: float | None
    samples_per_s: float | None
    tokens_per_s: float | None
    em: float | None
    f1: float | None
    peak_memory_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class Setting(RunFacts):
    """Columns that are equal for all repeats of a group."""

    dataset: str | None
    num_epochs: float | None
    num_train_features: int | None


@dataclass(frozen=True, kw_only=True)
class Group:
    """Repeats of one configuration on equal devices, the newest first."""

    key: str
    """Identifies the group in URLs."""
    setting: Setting
    config: dict[str, Any] = field(repr=False)
    """Config of the newest repeat."""
    software: tuple[dict[str, Any], ...] = field(repr=False)
    """Distinct sets of versions; more than one means mixed software."""
    repeats: tuple[Repeat, ...]

    @property
    def num_interrupted(self) -> int:
        """Repeats with more than one attempt: their wall clock includes waits and redone steps."""
        return sum(repeat.num_attempts > 1 for repeat in self.repeats)

    @property
    def as_reported(self) -> str | None:
        """Text in place of the number of runs for a reported result, such as `median of 3, as reported`; else None."""
        if self.setting.provenance != "reported":
            return None
        median = _MEDIAN_OF.search(self.repeats[0].name or "")
        return "as reported" if median is None else f"{median[0]}, as reported"

    def values_of(self, measure: str) -> list[float]:
        """Return the known values of a field over the repeats, in their order."""
        return [value for repeat in self.repeats if (value := getattr(repeat, measure)) is not None]


def speedup_groups(
    session: Session, recipe: str | None = None, provenance: str | None = None, study: str | None = None
) -> list[Group]:
    """Return the groups of finished runs that have a wall clock, the group of the newest run first.

    `study` is the id of a scaling study; its runs have the tag ``study:ID``.
    """
    conditions = [Run.wall_clock_s > 0]
    if study is not None:
        # Tags are stored as JSON; the quotation marks prevent matches within longer tags.
        conditions.append(cast(Run.tags, Text).contains(json.dumps(f"study:{study}"), autoescape=True))
    return _groups(session, recipe, provenance, *conditions)


def throughput_groups(session: Session, recipe: str | None = None, provenance: str | None = None) -> list[Group]:
    """Return the groups of finished runs that have a throughput, the group of the newest run first."""
    return _groups(session, recipe, provenance, Run.samples_per_s > 0)


_OF_SETTING = tuple(item.name for item in fields(Setting))
_OF_REPEAT = tuple(item.name for item in fields(Repeat))


def groups_revision(session: Session) -> tuple[Any, ...]:
    """Return a value that changes whenever a finished run is added, removed or gets new lines.

    Groups can be cached while it stays the same.
    """
    columns = func.count(), func.sum(Run.num_lines), func.max(Run.last_seen_at), func.sum(Run.last_seen_at)
    return tuple(session.execute(select(*columns).where(Run.status == "finished")).one())


def _groups(
    session: Session, recipe: str | None, provenance: str | None, *conditions: ColumnElement[bool]
) -> list[Group]:
    asked = {Run.recipe: recipe, Run.provenance: provenance}
    statement = (
        select(Run.config_digest, *(getattr(Run, name) for name in dict.fromkeys((*_OF_REPEAT, *_OF_SETTING))))
        .where(Run.status == "finished", *conditions)
        .where(*(column == value for column, value in asked.items() if value is not None))
        .order_by(Run.created_at.desc(), Run.run_id.desc())
        .limit(MAX_RUNS)
    )
    members: dict[str, list[Any]] = {}
    for row in session.execute(statement):
        members.setdefault(f"{row.provenance}-{row.config_digest[:16]}", []).append(row)
    newest = [rows[0].run_id for rows in members.values()]
    configs = {row[0]: row[1] for row in session.execute(select(Run.run_id, Run.config).where(Run.run_id.in_(newest)))}
    software = _software(session, [row.run_id for rows in members.values() for row in rows])
    return [
        Group(
            key=key,
            setting=Setting(**{name: getattr(rows[0], name) for name in _OF_SETTING}),
            config=configs[rows[0].run_id],
            software=_distinct(software[row.run_id] for row in rows if software.get(row.run_id)),
            repeats=tuple(Repeat(**{name: getattr(row, name) for name in _OF_REPEAT}) for row in rows),
        )
        for key, rows in members.items()
    ]


def _software(session: Session, run_ids: list[str]) -> dict[str, dict[str, Any]]:
    """Return the software versions of the newest attempt of each run."""
    # Read JSON as text, so that each distinct set of versions is parsed only once for thousands of runs.
    text = cast(Attempt.software, Text).label("text")
    statement = select(Attempt.run_id, text).where(Attempt.run_id.in_(run_ids)).order_by(Attempt.attempt)
    texts: dict[str, str] = {row.run_id: row.text for row in session.execute(statement)}
    known: dict[str, dict[str, Any]] = {software: json.loads(software) for software in set(texts.values())}
    return {run_id: known[software] for run_id, software in texts.items()}


def _distinct(versions: Iterable[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    distinct: list[dict[str, Any]] = []
    for version in versions:
        if version not in distinct:
            distinct.append(version)
    return tuple(distinct)
