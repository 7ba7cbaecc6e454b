"""Durable files: fsync of a path, and run directories that appear whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class AddedRun:
    """A run that was imported into a runs directory."""

    run_id: str
    is_new: bool
    """False if the run was there before."""


@contextmanager
def staged_run_dir(runs_dir: Path) -> Iterator[Path]:
    """Yield a new hidden folder in a runs directory; it is deleted on exit unless it was committed."""
    runs_dir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".import-", dir=runs_dir))
    try:
        folder.chmod(0o755)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def commit_run_dir(folder: Path, target: Path) -> bool:
    """Rename a staged folder; return False if another process has made the target first."""
    fsync_path(folder)
    try:
        folder.rename(target)
    except OSError:
        if target.is_dir():
            return False
        raise
    fsync_path(target.parent)
    return True


def fsync_path(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
