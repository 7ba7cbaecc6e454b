"""The table of runs: the database filters, sorts and pages it, without reading steps."""

import json
from collections import Counter
from dataclasses import dataclass, fields
from typing import Any, Literal

from sqlalchemy import ColumnElement, Select, Text, and_, case, cast, func, literal, or_, select
from sqlalchemy.orm import Session

from db.models import Attempt, Run
from db.queries.columns import columns_of

LOST_AFTER_S = 60.0
"""A running run without a new line for this time counts as lost; live runs write one every few seconds."""
Direction = Literal["asc", "desc"]
SortColumn = Literal[
    "status",
    "provenance",
    "name",
    "recipe",
    "model",
    "parallel",
    "world_size",
    "device_name",
    "em",
    "f1",
    "final_loss",
    "wall_clock_s",
    "samples_per_s",
    "tokens_per_s",
    "created_at",
]


class RunNotFoundError(LookupError):
    """A run that is not in the record."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run_id={run_id!r} is not in the record: look for it at /runs, or ingest its directory")
        self.run_id = run_id


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What a run trained, how, and on what."""

    provenance: str
    recipe: str | None
    model: str | None
    parallel: str | None
    precision: str | None
    world_size: int | None
    num_nodes: int | None
    device_type: str | None
    device_name: str | None
    global_batch_size: int | None


@dataclass(frozen=True, kw_only=True)
class RunRow(RunFacts):
    """One row of the table of runs."""

    run_id: str
    name: str | None
    tags: list[Any]
    status: str
    """`running`, `finished`, `failed`, `preempted` or `lost`."""
    num_attempts: int
    step: int | None
    num_steps: int | None
    em: float | None
    f1: float | None
    final_loss: float | None
    wall_clock_s: float | None
    samples_per_s: float | None
    tokens_per_s: float | None
    created_at: float
    last_seen_at: float | None


@dataclass(frozen=True, kw_only=True)
class RunDetail(RunRow):
    """One run with everything that its page shows."""

    note: str | None
    dataset: str | None
    config: dict[str, Any]
    config_digest: str
    started_at: float | None
    ended_at: float | None
    num_epochs: float | None
    num_train_features: int | None
    num_parameters: int | None
    train_time_s: float | None
    eval_time_s: float | None
    peak_memory_bytes: int | None
    peak_reserved_bytes: int | None


@dataclass(frozen=True)
class RunFilters:
    """Conditions on the listed runs; None accepts all."""

    status: str | None = None
    provenance: str | None = None
    recipe: str | None = None
    model: str | None = None
    parallel: str | None = None
    device_name: str | None = None
    text: str | None = None
    """Substring of the name, the id or a tag; ignores case."""


@dataclass(frozen=True)
class RunOrder:
    """Order of runs; runs without a value are always last."""

    sort: SortColumn = "created_at"
    direction: Direction = "desc"


@dataclass(frozen=True)
class RunPage:
    """One page of the matching runs."""

    rows: tuple[RunRow, ...]
    num_matching: int
    num_all: int
    choices: dict[str, tuple[tuple[str, int], ...]]
    """For each filter but the text: every value in the record with its number of runs."""


def list_runs(
    session: Session,
    now: float,
    filters: RunFilters | None = None,
    order: RunOrder | None = None,
    *,
    limit: int = 50,
    offset: int = 0,
) -> RunPage:
    """Return one page of the runs that match, with their status at the Unix time `now`; the newest first by default."""
    filters, order = filters or RunFilters(), order or RunOrder()
    conditions = _conditions(filters, now)
    # Query the ids first, then their rows: SQLite's rows are wide, and an index contains most sort columns.
    matching = _ordered(select(Run.run_id).where(*conditions), order, now).limit(limit).offset(offset).subquery()
    statement = select(*columns_of(Run, RunRow, status=effective_status(Run, now))).join(
        matching, matching.c.run_id == Run.run_id
    )
    rows = session.execute(_ordered(statement, order, now))
    choices, num_all = _choices(session, now)
    num_matching = num_runs(session, *conditions) if conditions else num_all
    return RunPage(tuple(RunRow(**row._mapping) for row in rows), num_matching, num_all, choices)


def get_run(session: Session, run_id: str, now: float) -> RunDetail:
    """Return one run.

    Raises:
        RunNotFoundError: the record has no run with this id.
    """
    columns = columns_of(Run, RunDetail, status=effective_status(Run, now))
    row = session.execute(select(*columns).where(Run.run_id == run_id)).one_or_none()
    if row is None:
        raise RunNotFoundError(run_id)
    return RunDetail(**row._mapping)


def num_runs(session: Session, *conditions: ColumnElement[bool]) -> int:
    """Return the number of runs in the record that meet the conditions."""
    return session.scalar(select(func.count()).select_from(Run).where(*conditions)) or 0


def effective_status(entity: type[Run] | type[Attempt], now: float) -> ColumnElement[str]:
    """Return the status at the Unix time `now`: `lost` if it is running without recent lines."""
    is_silent = or_(entity.last_seen_at.is_(None), entity.last_seen_at < now - LOST_AFTER_S)
    return case((and_(entity.status == "running", is_silent), literal("lost")), else_=entity.status)


def _conditions(filters: RunFilters, now: float) -> list[ColumnElement[bool]]:
    asked = {name: value for name, value in vars(filters).items() if value is not None}
    text = asked.pop("text", None)
    computed = {"status": effective_status(Run, now)}
    conditions = [computed.get(name, getattr(Run, name)) == value for name, value in asked.items()]
    return conditions if text is None else [*conditions, _has_text(text)]


def _has_text(text: str) -> ColumnElement[bool]:
    # Tags are stored as JSON, which escapes letters outside ASCII.
    in_json = json.dumps(text)[1:-1]
    return or_(
        Run.name.icontains(text, autoescape=True),
        Run.run_id.icontains(text, autoescape=True),
        cast(Run.tags, Text).icontains(in_json, autoescape=True),
    )


def _ordered(statement: Select[Any], order: RunOrder, now: float) -> Select[Any]:
    computed = {"status": effective_status(Run, now), "name": func.lower(func.coalesce(Run.name, Run.run_id))}
    key: ColumnElement[Any] = computed.get(order.sort, getattr(Run, order.sort))
    directed = key.desc() if order.direction == "desc" else key.asc()
    # Add NULLS LAST only if the column can be NULL, because the clause prevents the use of an index.
    if order.sort not in {"status", "name", "provenance", "created_at"}:
        directed = directed.nulls_last()
    tie = Run.run_id.desc() if order.direction == "desc" else Run.run_id.asc()
    return statement.order_by(directed, tie)


def _choices(session: Session, now: float) -> tuple[dict[str, tuple[tuple[str, int], ...]], int]:
    names = [field.name for field in fields(RunFilters) if field.name != "text"]
    keys = [getattr(Run, name) for name in names]
    # Group by plain columns, which have an index; count lost runs within each group.
    num_lost = func.count().filter(effective_status(Run, now) == "lost")
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    num_all = 0
    for *values, count, lost in session.execute(select(*keys, func.count(), num_lost).group_by(*keys)):
        num_all += count
        for name, value in zip(names, values, strict=True):
            if value is not None:
                counts[name][value] += count
        if lost:
            counts["status"].update({"lost": lost, "running": -lost})
    return {name: tuple(sorted((+found).items())) for name, found in counts.items()}, num_all
