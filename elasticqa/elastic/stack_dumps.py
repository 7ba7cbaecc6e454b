"""Where the threads of a rank stand, kept in the run directory when its attempt ends badly."""

import faulthandler
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PEER_LOST = signal.SIGUSR2
"""Sent by hand to a job that hangs: a worker keeps its stacks and dies of it."""
_OTHER_ENTRY_S = 5.0


def print_stacks_when_asked() -> None:
    """Have `PEER_LOST` print the stacks to standard error before the process dies of it; a `StackFile` takes over."""
    faulthandler.register(PEER_LOST, file=2, all_threads=True, chain=True)


class StackFile:
    """The stacks of one rank in one attempt; a file without any is removed.

    What cannot be written, on a full disk, is left out: nothing here keeps a process from its end.
    """

    def __init__(self, run_dir: Path, attempt: int, rank: int) -> None:
        """Make the file, and have `PEER_LOST` write the stacks before the process dies of it."""
        self.name = f"stacks/attempt-{attempt:04d}-rank-{rank:05d}.txt"
        self._path = run_dir / self.name
        self._path.parent.mkdir(exist_ok=True)
        self._file = self._path.open("a", encoding="utf-8")
        self._lock = threading.Lock()
        self._entries = threading.Condition()
        self._num_entries = 0
        faulthandler.register(PEER_LOST, file=self._file, all_threads=True, chain=True)

    def dump(self, why: str) -> None:
        """Add the stacks of all threads, and return when what other threads add is there too: the process ends then."""
        with suppress(OSError), self._entry(why):
            faulthandler.dump_traceback(file=self._file, all_threads=True)
        with self._entries:
            self._entries.wait_for(lambda: self._num_entries == 0, _OTHER_ENTRY_S)

    def add_error(self, why: str, error: BaseException) -> None:
        """Add the traceback of an error."""
        with suppress(OSError), self._entry(why):
            traceback.print_exception(error, file=self._file)

    @contextmanager
    def _entry(self, why: str) -> Iterator[None]:
        """Have the block add to the file; an entry that another thread adds is whole first, unless the disk hangs."""
        with self._entries:
            self._num_entries += 1
        is_alone = self._lock.acquire(timeout=_OTHER_ENTRY_S)
        try:
            self._file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {why}\n")
            self._file.flush()
            yield
            self._file.flush()
            os.fsync(self._file.fileno())
        finally:
            if is_alone:
                self._lock.release()
            with self._entries:
                self._num_entries -= 1
                self._entries.notify_all()

    def close(self) -> None:
        """Close the file."""
        faulthandler.unregister(PEER_LOST)
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            if self._path.stat().st_size == 0:
                self._path.unlink()


def main_thread_place() -> tuple[object, str]:
    """Return where the main thread stands: something to compare, and words for its innermost line."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    told = "an unknown place" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
    places = []
    while frame is not None:
        places.append((id(frame), frame.f_lasti))
        frame = frame.f_back
    return tuple(places), told
