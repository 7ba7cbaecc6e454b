"""Locks on files between processes; the kernel releases one when its holder ends, even by SIGKILL.

Not the package `filelock`: without flock it falls back to marker files, which remain after SIGKILL.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for the lock on a file, created if absent, and hold it during the block."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Hold the lock on a file, created if absent, during the block; yield False at once if another process holds it.

    On a file system without locks, yield True.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        is_mine = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            is_mine = not isinstance(error, BlockingIOError)
        yield is_mine
    finally:
        os.close(descriptor)
