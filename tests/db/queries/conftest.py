"""A record that was filled through journals."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from db.ingest.update import ingest
from tests.support.dashboard_data import write_run
from tests.support.query_runs import KILLED, LOST, PLAIN, RUNNING


@pytest.fixture
def session(engine: Engine, tmp_path: Path) -> Iterator[Session]:
    for spec in (KILLED, PLAIN, RUNNING, LOST):
        write_run(tmp_path / "runs", spec)
    ingest(engine, tmp_path / "runs")
    with Session(engine) as session:
        yield session
