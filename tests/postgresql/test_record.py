"""The record on PostgreSQL: the same schema, the same rows."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, select, text

from db.engine import DatabaseVersionError, create_engine_for, migrate
from db.ingest.update import ingest
from db.models import Base
from tests.support.journals import attempt_line, journal_path, numbered, step_line, write_run

pytestmark = [pytest.mark.postgresql, pytest.mark.slow]


def every_row(engine: Engine) -> dict[str, list[dict[str, Any]]]:
    with engine.connect() as connection:
        return {
            table.name: [dict(row) for row in connection.execute(select(table).order_by(*table.primary_key)).mappings()]
            for table in Base.metadata.sorted_tables
        }


def rows_on_sqlite(runs: Path, folder: Path) -> dict[str, list[dict[str, Any]]]:
    engine = create_engine_for(f"sqlite:///{folder / 'x.db'}")
    migrate(engine)
    ingest(engine, runs)
    rows = every_row(engine)
    engine.dispose()
    return rows


def test_migrations_equal_the_models(postgresql: Engine) -> None:
    migrate(postgresql)
    migrate(postgresql)
    with postgresql.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []


def test_migrate_by_several_at_once_makes_one_schema(postgresql_url: str) -> None:
    start = threading.Barrier(4)

    def migrate_anew() -> None:
        engine = create_engine_for(postgresql_url)
        start.wait()
        migrate(engine)
        engine.dispose()

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(migrate_anew) for _ in range(4)]:
            future.result()


def test_migrate_refuses_a_newer_database(postgresql: Engine) -> None:
    migrate(postgresql)
    with postgresql.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999_from_tomorrow'"))
    with pytest.raises(DatabaseVersionError):
        migrate(postgresql)


def test_rows_equal_those_of_sqlite(postgresql: Engine, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for name in ("a", "b"):
        write_run(runs, name, num_steps=300)
    migrate(postgresql)
    first = ingest(postgresql, runs)
    assert first.problems == ()
    assert ingest(postgresql, runs).num_lines == 0
    assert every_row(postgresql) == rows_on_sqlite(runs, tmp_path)


def test_values_that_only_one_database_refuses_are_told(postgresql: Engine, tmp_path: Path) -> None:
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
    assert rows == rows_on_sqlite(tmp_path / "runs", tmp_path)
    assert len(rows["steps"]) == 1


def read_until(is_written: threading.Event, url: str, runs: Path) -> None:
    engine = create_engine_for(url)
    migrate(engine)
    is_last = False
    while not is_last:
        is_last = is_written.is_set()
        ingest(engine, runs)
    engine.dispose()


def test_ingests_at_once_neither_lose_nor_double_rows(postgresql_url: str, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    sources = {name: write_run(tmp_path / "source", name, num_steps=30).read_bytes() for name in "abcd"}
    is_written = threading.Event()
    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read_until, is_written, postgresql_url, runs) for _ in range(3)]
        for end in [*range(0, 15_000, 1500), None]:
            for name, source in sources.items():
                journal_path(runs, name).write_bytes(source[:end])
        is_written.set()
        for reader in readers:
            reader.result()
    engine = create_engine_for(postgresql_url)
    assert every_row(engine) == rows_on_sqlite(runs, tmp_path)
    engine.dispose()
