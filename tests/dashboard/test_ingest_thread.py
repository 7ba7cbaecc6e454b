"""The ingest thread."""

import sqlite3
import threading
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import text

from dashboard.ingest_thread import ingest_thread
from db.engine import create_engine_for, migrate
from db.ingest.update import ingest
from tests.support.dashboard_data import AttemptSpec, RunSpec, ulid, write_run
from tests.support.dashboard_homes import NOW
from tests.support.processes import until


def test_ingest_runs_until_the_server_stops(tmp_path: Path) -> None:
    engine = create_engine_for(f"sqlite:///{tmp_path / 'record.db'}")
    migrate(engine)

    def is_in_the_record() -> bool:
        with engine.connect() as connection:
            return bool(connection.execute(text(f"SELECT 1 FROM runs WHERE run_id = '{ulid(7)}'")).all())

    with ingest_thread(engine, partial(ingest, engine, tmp_path / "runs"), 0.05):
        write_run(tmp_path / "runs", RunSpec(ulid(7), (AttemptSpec(1, 2, NOW),)))
        until(is_in_the_record, "the ingest")
    assert "ingest" not in {thread.name for thread in threading.enumerate()}
    engine.dispose()


def test_ingest_continues_after_a_failure(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = create_engine_for(f"sqlite:///{tmp_path / 'record.db'}")
    engine.connect().close()
    with ingest_thread(engine, partial(ingest, engine, tmp_path / "runs"), 0.05):
        until(lambda: caplog.text.count("ingest failed") > 1, "the ingest")
    engine.dispose()


@pytest.mark.parametrize("is_moved", [False, True], ids=["deleted", "replaced"])
def test_deleted_or_replaced_database_file_is_reopened(tmp_path: Path, is_moved: bool) -> None:
    path = tmp_path / "record.db"
    other, engine = (create_engine_for(f"sqlite:///{file}") for file in (tmp_path / "other.db", path))
    for each in (other, engine):
        migrate(each)
    other.dispose()
    write_run(tmp_path / "runs", RunSpec(ulid(7), (AttemptSpec(1, 2, NOW),)))

    def has_run(number: int) -> bool:
        with engine.connect() as connection:
            return bool(connection.execute(text(f"SELECT 1 FROM runs WHERE run_id = '{ulid(number)}'")).all())

    with ingest_thread(engine, partial(ingest, engine, tmp_path / "runs"), 0.05):
        until(lambda: has_run(7), "the ingest")
        for name in ("record.db-wal", "record.db-shm", "record.db"):
            (tmp_path / name).unlink(missing_ok=True)
        if is_moved:
            (tmp_path / "other.db").rename(path)
        write_run(tmp_path / "runs", RunSpec(ulid(8), (AttemptSpec(1, 2, NOW),)))
        until(lambda: path.exists() and runs_in(path) >= {ulid(7), ulid(8)}, "the ingest")
        assert has_run(8), "pages read the new file too"
    engine.dispose()


def runs_in(path: Path) -> set[str]:
    """Return the runs that a new connection finds in a database file; none while it is being created."""
    with closing(sqlite3.connect(path, timeout=30)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'runs'").fetchall():
            return set()
        return {run_id for (run_id,) in connection.execute("SELECT run_id FROM runs")}
