"""An empty runs directory."""

from pathlib import Path

import pytest


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Return an empty runs directory."""
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder
