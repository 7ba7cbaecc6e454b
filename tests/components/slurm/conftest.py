"""Fake Slurm commands on PATH."""

from pathlib import Path

import pytest

from tests.support.slurm_commands import FORGOTTEN, NO_ACCOUNTS, install


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of fake commands on PATH: a controller without jobs, and no accounting."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    install(directory, "squeue", FORGOTTEN)
    install(directory, "sacct", NO_ACCOUNTS)
    return directory
