"""A database filled from journals."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from db.engine import create_engine_for
from db.ingest.update import ingest
from tests.support.dashboard_data import write_run
from tests.support.query_runs import KILLED, LOST, PLAIN, RUNNING


@pytest.fixture(scope="session")
def filled_database(migrated_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database that holds four runs, to be copied."""
    folder = tmp_path_factory.mktemp("filled")
    for spec in (KILLED, PLAIN, RUNNING, LOST):
        write_run(folder / "runs", spec)
    engine = create_engine_for(f"sqlite:///{shutil.copy(migrated_database, folder)}")
    ingest(engine, folder / "runs")
    engine.dispose()
    return folder / migrated_database.name


@pytest.fixture
def session(engine: Engine, filled_database: Path) -> Iterator[Session]:
    """Yield a session on the record of four runs."""
    shutil.copy(filled_database, str(engine.url.database))
    with Session(engine) as session:
        yield session
