"""The home directory: created if absent, checked to be writable; the ids of its runs and their locks."""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from ulid import ULID

from db.storage.file_lock import try_lock
from db.storage.home import home_of, runs_dir_of
from db.storage.run_files import REPORTED_DIR
from elasticqa.config.environment import ENVIRONMENT
from elasticqa.errors import ConfigError


def home(environ: Mapping[str, str] = ENVIRONMENT) -> Path:
    """Return the home directory, created if absent.

    Raises:
        ConfigError: it cannot be created or written.
    """
    path = home_of(environ)
    try:
        path.mkdir(parents=True, exist_ok=True)
        if os.access(path, os.W_OK | os.X_OK):
            return path
        problem = "is not writable"
    except OSError as error:
        problem = f"cannot be created ({error.strerror})"
    raise ConfigError(
        f"home directory {path} {problem}: runs are written there; set ELASTICQA_HOME to a directory that you can write"
    )


def runs_dir(environ: Mapping[str, str] = ENVIRONMENT) -> Path:
    """Return the directory of all run directories; creates the home directory, but not this one."""
    return runs_dir_of(home(environ))


def find_run(run: str, runs: Path) -> Path:
    """Return the directory of a run, given the id or a unique prefix of it; a reported run has none.

    Raises:
        ConfigError: no run has this prefix, or more than one.
    """
    ids = {entry.name for folder in (runs, REPORTED_DIR) if folder.is_dir() for entry in folder.iterdir()}
    if run in ids:
        return runs / run
    found = sorted(run_id for run_id in ids if run and run_id.startswith(run))
    if len(found) == 1:
        return runs / found[0]
    if found:
        raise ConfigError(
            f"run {run!r} is a prefix of {len(found)} runs: give more characters of {', '.join(found[:3])}"
        )
    raise ConfigError(f"run {run!r} is not in {runs}: `elasticqa runs` lists the ids")


def hold(directory: Path) -> AbstractContextManager[bool]:
    """Lock a run during the block, so that one process group trains it; yields False if another process holds the lock.

    Raises:
        OSError: the lock file cannot be opened.
    """
    return try_lock(directory / "active.lock")


def new_run_id() -> str:
    """Return a new ULID: 26 characters that sort by time."""
    return str(ULID())
