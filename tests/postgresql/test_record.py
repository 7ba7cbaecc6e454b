"""Schema and rows on PostgreSQL equal those on SQLite."""

from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from db.engine import DatabaseError, migrate
from db.ingest.update import ingest
from tests.support.journals import attempt_line, journal_path, numbered, step_line, write_run
from tests.support.rows import every_row, ingest_at_once, migrate_at_once, rebuilt, schema_differences

pytestmark = [pytest.mark.postgresql, pytest.mark.slow]


def test_migrations_equal_the_models(postgresql: Engine) -> None:
    migrate(postgresql)
    migrate(postgresql)
    assert schema_differences(postgresql) == []


def test_concurrent_migrations_create_one_schema(postgresql: Engine, postgresql_url: str) -> None:
    migrate_at_once(postgresql_url)
    assert schema_differences(postgresql) == []


def test_migrate_refuses_a_newer_database(postgresql: Engine) -> None:
    migrate(postgresql)
    with postgresql.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999_from_tomorrow'"))
    with pytest.raises(DatabaseError, match="unknown to this release"):
        migrate(postgresql)


def test_rows_equal_those_of_sqlite(postgresql: Engine, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for name in ("a", "b"):
        write_run(runs, name, num_steps=300)
    migrate(postgresql)
    first = ingest(postgresql, runs)
    assert first.problems == []
    assert ingest(postgresql, runs).num_lines == 0
    assert every_row(postgresql) == rebuilt(runs, tmp_path)


def test_values_refused_by_one_database_are_reported(postgresql: Engine, tmp_path: Path) -> None:
    event = {"kind": "event", "data": {}}
    lines = [
        attempt_line("a"),
        event | {"name": "NUL \0"},
        event | {"name": "x", "data": {"deep": ["\0"]}},
        event | {"name": "\ud800"},
        step_line(1, num_tokens=2**31),
        step_line(1, samples_seen=2**63),
        step_line(1, loss=1e308, samples_seen=2**63 - 1),
        event | {"name": "Ü \U0001f600 \\u0000", "data": {"big": 10**30, "number": 1e-320}},
    ]
    journal_path(tmp_path / "runs", "a").write_bytes(numbered(lines))
    migrate(postgresql)
    report = ingest(postgresql, tmp_path / "runs")
    assert [problem.line for problem in report.problems] == [2, 3, 4, 5, 6]
    rows = every_row(postgresql)
    assert rows == rebuilt(tmp_path / "runs", tmp_path)
    assert len(rows["steps"]) == 1


def test_concurrent_ingests_neither_lose_nor_duplicate_rows(postgresql_url: str, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    assert ingest_at_once(postgresql_url, runs, tmp_path) == rebuilt(runs, tmp_path)
