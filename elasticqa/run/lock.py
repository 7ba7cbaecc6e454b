"""Who works for a run: one process group at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LOCK = "active.lock"


@contextmanager
def hold(directory: Path) -> Iterator[bool]:
    """Hold a run while the block runs, and tell whether nobody else did: a process that dies lets go.

    Where the file system has no locks the answer is yes.
    """
    descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError:
            pass
        yield True
    finally:
        os.close(descriptor)
