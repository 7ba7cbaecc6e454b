"""A runs directory and a migrated database for the tests of the record."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from db.engine import create_engine_for, migrate


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Return an empty runs directory."""
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """Yield an engine on a database with its schema."""
    engine = create_engine_for(f"sqlite:///{tmp_path / 'record.db'}")
    migrate(engine)
    yield engine
    engine.dispose()
