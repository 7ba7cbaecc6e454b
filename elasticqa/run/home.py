"""The home directory: created if absent, checked to be writable; and the ids of runs."""

import os
from collections.abc import Mapping
from pathlib import Path

from ulid import ULID

from db.storage.home import home_of, runs_dir_of
from db.storage.run_files import REPORTED_DIR
from elasticqa.config.environment import ENVIRONMENT
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


def home(environ: Mapping[str, str] = ENVIRONMENT) -> Path:
    """Return the home directory, created if absent.

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


def runs_dir(environ: Mapping[str, str] = ENVIRONMENT) -> Path:
    """Return the directory of all run directories; it is not created.

    Raises:
        HomeError: as `home` does.
    """
    return runs_dir_of(home(environ))


def find_run(run: str, runs: Path) -> str:
    """Return the id of a run, given the id or a unique prefix of it.

    Raises:
        ConfigError: no run has this prefix, or more than one.
    """
    ids = {entry.name for folder in (runs, REPORTED_DIR) if folder.is_dir() for entry in folder.iterdir()}
    if run in ids:
        return run
    found = sorted(run_id for run_id in ids if run and run_id.startswith(run))
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(
            f"run {run!r} is a prefix of {len(found)} runs: give more characters of {', '.join(found[:3])}"
        )
    raise ConfigError(f"run {run!r} is not in {runs}: `elasticqa runs` lists the ids")


def new_run_id() -> str:
    """Return a new ULID: 26 characters that sort by time."""
    return str(ULID())
