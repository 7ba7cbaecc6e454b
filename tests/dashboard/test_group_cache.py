"""The cache of groups."""

import json
from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from dashboard.routes.dependencies import MAX_ENTRIES, GroupCache
from db.ingest.update import ingest
from db.queries import Group, speedup_groups
from tests.support.dashboard_data import AttemptSpec, RunSpec, ulid, write_run
from tests.support.dashboard_homes import NOW


@pytest.fixture
def engine(engine: Engine, tmp_path: Path) -> Engine:
    """Return an engine on a record of one finished run."""
    write_run(tmp_path / "runs", RunSpec(ulid(1), (AttemptSpec(1, 9, NOW - 90),)))
    ingest(engine, tmp_path / "runs")
    return engine


class Finder:
    """Finds groups and counts its calls."""

    def __init__(self) -> None:
        self.num_calls = 0

    def __call__(self, session: Session, recipe: str | None = None) -> list[Group]:
        self.num_calls += 1
        return speedup_groups(session, recipe, "measured")


def cached_groups(engine: Engine, cache: GroupCache, find: Finder, recipe: str | None = None) -> list[Group]:
    with Session(engine) as session:
        return cache.get(session, find, recipe)


def test_groups_are_built_once_per_query(engine: Engine) -> None:
    cache, find = GroupCache(), Finder()
    first = cached_groups(engine, cache, find)
    assert len(first) == 1
    assert cached_groups(engine, cache, find) is first
    assert cached_groups(engine, cache, find, "none such") == []
    assert find.num_calls == 2


def annotate(runs: Path) -> None:
    line = {"n": 1, "t": NOW, "kind": "name", "value": "new name"}
    (runs / ulid(1) / "annotations.jsonl").write_text(json.dumps(line) + "\n")


def finish_another(runs: Path) -> None:
    write_run(runs, RunSpec(ulid(2), (AttemptSpec(1, 9, NOW - 90),)))


@pytest.mark.parametrize("change", [annotate, finish_another])
def test_change_of_a_finished_run_is_seen_at_once(engine: Engine, tmp_path: Path, change: object) -> None:
    cache, find = GroupCache(), Finder()
    before = cached_groups(engine, cache, find)
    assert callable(change)
    change(tmp_path / "runs")
    ingest(engine, tmp_path / "runs")
    after = cached_groups(engine, cache, find)
    assert after != before
    with Session(engine) as session:
        assert after == speedup_groups(session, None, "measured")


def test_running_run_does_not_change_the_groups(engine: Engine, tmp_path: Path) -> None:
    cache, find = GroupCache(), Finder()
    first = cached_groups(engine, cache, find)
    write_run(tmp_path / "runs", RunSpec(ulid(3), (AttemptSpec(1, 9, NOW - 30, None),)))
    ingest(engine, tmp_path / "runs")
    assert cached_groups(engine, cache, find) is first


def test_number_of_entries_is_limited(engine: Engine) -> None:
    cache, find = GroupCache(), Finder()
    for number in range(MAX_ENTRIES + 1):
        cached_groups(engine, cache, find, f"recipe {number}")
    cached_groups(engine, cache, find, f"recipe {MAX_ENTRIES}")
    assert find.num_calls == MAX_ENTRIES + 1
    cached_groups(engine, cache, find, "recipe 0")
    assert find.num_calls == MAX_ENTRIES + 2
