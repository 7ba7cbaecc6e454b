"""Groups that are kept from one visit to the next."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from dashboard.routes.group_cache import MAX_ENTRIES, GroupCache
from db.engine import create_engine_for, migrate
from db.ingest.update import ingest
from db.queries import Group, speedup_groups
from tests.support.dashboard_data import Life, RunSpec, ulid, write_run
from tests.support.dashboard_homes import NOW


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine_for(f"sqlite:///{tmp_path / 'record.db'}")
    migrate(engine)
    write_run(tmp_path / "runs", RunSpec(ulid(1), (Life(1, 9, NOW - 90),)))
    ingest(engine, tmp_path / "runs")
    yield engine
    engine.dispose()


class Finder:
    """Finds groups and counts how often it was asked."""

    def __init__(self) -> None:
        self.num_calls = 0

    def __call__(self, session: Session, recipe: str | None = None) -> list[Group]:
        self.num_calls += 1
        return speedup_groups(session, recipe, "measured")


def asked(engine: Engine, cache: GroupCache, find: Finder, recipe: str | None = None) -> list[Group]:
    with Session(engine) as session:
        return cache.get(session, find, recipe)


def test_groups_are_put_together_once_for_each_question(engine: Engine) -> None:
    cache, find = GroupCache(), Finder()
    first = asked(engine, cache, find)
    assert len(first) == 1
    assert asked(engine, cache, find) is first
    assert asked(engine, cache, find, "none such") == []
    assert find.num_calls == 2


def annotate(runs: Path) -> None:
    line = {"n": 1, "t": NOW, "kind": "name", "value": "new name"}
    (runs / ulid(1) / "annotations.jsonl").write_text(json.dumps(line) + "\n")


def finish_another(runs: Path) -> None:
    write_run(runs, RunSpec(ulid(2), (Life(1, 9, NOW - 90),)))


@pytest.mark.parametrize("change", [annotate, finish_another])
def test_whatever_changes_a_finished_run_is_seen_at_once(engine: Engine, tmp_path: Path, change: object) -> None:
    cache, find = GroupCache(), Finder()
    before = asked(engine, cache, find)
    assert callable(change)
    change(tmp_path / "runs")
    ingest(engine, tmp_path / "runs")
    after = asked(engine, cache, find)
    assert after != before
    with Session(engine) as session:
        assert after == speedup_groups(session, None, "measured")


def test_run_at_work_leaves_the_groups_as_they_are(engine: Engine, tmp_path: Path) -> None:
    cache, find = GroupCache(), Finder()
    first = asked(engine, cache, find)
    write_run(tmp_path / "runs", RunSpec(ulid(3), (Life(1, 9, NOW - 30, None),)))
    ingest(engine, tmp_path / "runs")
    assert asked(engine, cache, find) is first


def test_questions_of_a_reader_fill_no_memory(engine: Engine) -> None:
    cache, find = GroupCache(), Finder()
    for number in range(MAX_ENTRIES + 1):
        asked(engine, cache, find, f"recipe {number}")
    asked(engine, cache, find, f"recipe {MAX_ENTRIES}")
    assert find.num_calls == MAX_ENTRIES + 1
    asked(engine, cache, find, "recipe 0")
    assert find.num_calls == MAX_ENTRIES + 2
