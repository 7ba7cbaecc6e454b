"""A file of JSON lines that a thread appends to, so that the training thread never waits for the disk."""

import json
import math
import os
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from db.storage.durable import fsync_path
from elasticqa.errors import JournalError

# Lines are on disk after this time plus one fsync; the documented limit is one second.
WRITE_INTERVAL_S = 0.5


class LineWriter:
    """A new file of JSON lines and the thread that appends to it.

    When the disk is full, lines stay queued, and every later batch tries again. A failed fsync, or a line that is not
    JSON, is a permanent error: its data is lost.
    """

    def __init__(self, path: Path, *, is_numbered: bool) -> None:
        """Create the file, which must not exist; numbered lines have their number in the file, from 1, as `n`."""
        self.path = path
        self._is_numbered = is_numbered
        self._queue: deque[dict[str, Any] | threading.Event] = deque()
        self._pending = b""
        self._num_lines = 0
        self._is_synced = True
        self._stalled: JournalError | None = None
        self._broken: JournalError | None = None
        self._closing = False
        self._wake = threading.Event()
        path.parent.mkdir(parents=True, exist_ok=True)
        # O_EXCL: a second writer of the same attempt gets an error, instead of mixing its lines in.
        self._file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o644)
        fsync_path(path.parent)
        self._thread = threading.Thread(target=self._run, name=f"journal {path.name}", daemon=True)
        self._thread.start()

    @property
    def error(self) -> JournalError | None:
        """Why lines are not durable, or None."""
        return self._broken or self._stalled

    def put(self, line: dict[str, Any]) -> None:
        """Queue a line, from any thread.

        Raises:
            JournalError: the file is closed.
        """
        if self._closing:
            raise JournalError(f"{self.path} is closed: write before close()")
        # Do not wake the thread: this call must take only the microseconds of an append.
        self._queue.append(line)

    def flush(self, timeout_s: float = 60.0) -> None:
        """Return once every line queued so far is fsynced.

        Raises:
            JournalError: a line could not be written, or not within the timeout.
        """
        if self._thread.is_alive():
            done = threading.Event()
            self._queue.append(done)
            self._wake.set()
            if not done.wait(timeout_s):
                raise JournalError(f"{self.path} was not written within {timeout_s:g} s: is its file system reachable?")
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        """Write the queued lines and stop the thread; a second call does nothing.

        Raises:
            JournalError: a line could not be written.
        """
        if self._closing:
            return
        self._closing = True
        self._wake.set()
        self._thread.join()
        os.close(self._file)
        if self.error is not None:
            raise self.error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        while True:
            self._wake.wait(WRITE_INTERVAL_S)
            self._wake.clear()
            # Read the flag before draining, so that the last round writes all lines queued before close().
            is_last = self._closing
            self._drain()
            if is_last:
                return

    def _drain(self) -> None:
        lines: list[bytes] = []
        waiting: list[threading.Event] = []
        for _ in range(len(self._queue)):
            item = self._queue.popleft()
            if isinstance(item, threading.Event):
                waiting.append(item)
            else:
                lines.append(self._render(item))
        self._pending += b"".join(lines)
        self._append()
        for event in waiting:
            event.set()

    def _render(self, line: dict[str, Any]) -> bytes:
        try:
            if self._is_numbered:
                line["n"] = self._num_lines + 1
            text = _dumps(line)
        except (TypeError, ValueError) as error:
            self._broken = JournalError(f"{self.path} lost a line that is not JSON: {error}")
            return b""
        self._num_lines += 1
        return text.encode() + b"\n"

    def _append(self) -> None:
        try:
            while self._pending:
                written = os.write(self._file, self._pending)
                self._pending = self._pending[written:]
                self._is_synced = False
        except OSError as error:
            self._stalled = JournalError(f"{self.path} cannot be written ({error.strerror}): free space there")
            return
        self._stalled = None
        if self._is_synced:
            return
        try:
            os.fsync(self._file)
        except OSError as error:
            # The kernel drops the dirty pages of a failed fsync, so a later success would not save them.
            self._broken = JournalError(f"{self.path} cannot be made durable ({error.strerror}): check its disk")
        self._is_synced = True


def _dumps(line: dict[str, Any]) -> str:
    try:
        return json.dumps(line, allow_nan=False, separators=(",", ":"), default=_plain)
    except ValueError:
        # Only for lines with NaN or Infinity, which are rare.
        return json.dumps(_finite(line), allow_nan=False, separators=(",", ":"), default=_plain)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if hasattr(value, "tolist"):
        return _finite(value.tolist())
    return value


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{value!r} of type {type(value).__name__}")
