"""The home directory of the record as the core sees it: created, writable, with ids for new runs."""

import os
from collections.abc import Mapping
from pathlib import Path

from ulid import ULID

from db.home import home_of, runs_dir_of
from elasticqa.errors import ConfigError


class HomeError(ConfigError):
    """The home directory cannot hold runs."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        self.problem = problem

    def __str__(self) -> str:
        return (
            f"home directory {self.path} {self.problem}: runs are written there; set ELASTICQA_HOME to a directory "
            "that you can write"
        )


def home(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the home directory, created where it is missing.

    Raises:
        HomeError: it cannot be created or written.
    """
    path = home_of(environ)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HomeError(path, f"cannot be created ({error.strerror})") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise HomeError(path, "is not writable")
    return path


def runs_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory that holds one directory a run; it is not created.

    Raises:
        HomeError: as `home` does.
    """
    return runs_dir_of(home(environ))


def new_run_id() -> str:
    """Return a ULID of now: 26 characters that sort by time."""
    return str(ULID())
