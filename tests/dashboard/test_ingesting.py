"""The thread that ingests beside the pages."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from dashboard.ingesting import IngestLoop
from db.engine import create_engine_for, migrate
from tests.dashboard.homes import NOW
from tests.dashboard_data import Life, RunSpec, ulid, write_run


def wait_until(is_true: Callable[[], bool]) -> None:
    """Return once the condition holds; fail when it does not within 30 s."""
    clock = threading.Event()
    for _ in range(600):
        if is_true():
            return
        clock.wait(0.05)
    pytest.fail("nothing happened within 30 s")


def test_ingest_runs_until_the_server_stops(tmp_path: Path) -> None:
    engine = create_engine_for(f"sqlite:///{tmp_path / 'record.db'}")
    migrate(engine)

    def is_in_the_record() -> bool:
        with engine.connect() as connection:
            return bool(connection.execute(text(f"SELECT 1 FROM runs WHERE run_id = '{ulid(7)}'")).all())

    with IngestLoop(engine, tmp_path / "runs", 0.05):
        write_run(tmp_path / "runs", RunSpec(ulid(7), (Life(1, 2, NOW),)))
        wait_until(is_in_the_record)
    assert "ingest" not in {thread.name for thread in threading.enumerate()}
    engine.dispose()


def test_ingest_goes_on_after_a_failure(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = create_engine_for(f"sqlite:///{tmp_path / 'record.db'}")
    with IngestLoop(engine, tmp_path / "runs", 0.05):
        wait_until(lambda: caplog.text.count("ingest failed") > 1)
    engine.dispose()
