"""Run directories that come into being at once: written beside the others under a hidden name, then renamed."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def staged(runs_dir: Path) -> Iterator[Path]:
    """Give a new folder in a runs directory that no reader takes for a run; it is gone afterwards unless renamed."""
    runs_dir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".import-", dir=runs_dir))
    try:
        folder.chmod(0o755)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def commit(folder: Path, target: Path) -> bool:
    """Rename a staged folder; return False where another process was first."""
    sync(folder)
    try:
        folder.rename(target)
    except OSError:
        if target.is_dir():
            return False
        raise
    sync(target.parent)
    return True


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
