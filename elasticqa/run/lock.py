"""The lock of a run: only one process group at a time trains it."""

from contextlib import AbstractContextManager
from pathlib import Path

from db.storage.file_lock import try_lock


def hold(directory: Path) -> AbstractContextManager[bool]:
    """Hold a run during the block; yields False if another process holds it.

    Raises:
        OSError: the lock file cannot be opened.
    """
    return try_lock(directory / "active.lock")
