"""Stack dumps: the stacks of all threads of a rank, kept in the run directory when its attempt fails."""

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

STACK_DUMP_SIGNAL = signal.SIGUSR2
"""Makes a worker dump its stacks and die. A user sends it to a job that hangs, an agent to a stopped worker."""
_OTHER_ENTRY_S = 5.0


def dump_stacks_on_signal() -> None:
    """Have the signal print the stacks to standard error before the process dies; a `StackDumpFile` replaces this."""
    faulthandler.register(STACK_DUMP_SIGNAL, file=2, all_threads=True, chain=True)


class StackDumpFile:
    """The stack dumps of one rank in one attempt; an empty file is removed.

    Write errors, such as a full disk, are ignored: they must not keep the process from ending.
    """

    def __init__(self, run_dir: Path, attempt: int, rank: int) -> None:
        """Make the file, and have the signal dump the stacks into it before the process dies."""
        self.name = f"stacks/attempt-{attempt:04d}-rank-{rank:05d}.txt"
        self._path = run_dir / self.name
        self._path.parent.mkdir(exist_ok=True)
        self._file = self._path.open("a", encoding="utf-8")
        self._lock = threading.Lock()
        self._entries = threading.Condition()
        self._num_entries = 0
        faulthandler.register(STACK_DUMP_SIGNAL, file=self._file, all_threads=True, chain=True)

    def dump(self, why: str) -> None:
        """Add the stacks of all threads, and wait for the entries of other threads: the process ends after this."""
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
        """Let the block add an entry; first wait for the entries of other threads, with a timeout if the disk hangs."""
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
        faulthandler.unregister(STACK_DUMP_SIGNAL)
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            if self._path.stat().st_size == 0:
                self._path.unlink()


def main_thread_position() -> tuple[object, str]:
    """Return where the main thread is: a value to compare, and its innermost source line as text."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    line = "an unknown place" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
    positions = []
    while frame is not None:
        positions.append((id(frame), frame.f_lasti))
        frame = frame.f_back
    return tuple(positions), line
