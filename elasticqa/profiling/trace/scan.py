"""A trace file as a stream: its top-level entries and its events, one at a time."""

import gzip
import io
import json
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from elasticqa.errors import shown

MAX_VALUE_CHARS = 8 << 20
"""Longest event or metadata entry; the longest that Kineto writes list the ranks of process groups."""

_CHUNK_CHARS = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_SPACE = re.compile(r"[ \t\r\n]*")
# Kineto writes names as they are, control characters included.
_DECODER = json.JSONDecoder(strict=False)


class TraceError(ValueError):
    """A file that is no readable trace.

    Attributes:
        file: which.
        position: of the uncompressed text, in characters from 0; None where the file as a whole is meant.
        rule: what is wrong there, on one line.
    """

    def __init__(self, file: str | os.PathLike[str], position: int | None, rule: str) -> None:
        super().__init__(file, position, rule)
        self.file = file
        self.position = position
        self.rule = rule

    def __str__(self) -> str:
        place = "" if self.position is None else f", character {self.position}"
        return f"{os.fsdecode(self.file)}{place}: {self.rule}"


class Entry(NamedTuple):
    """One event (key `traceEvents`) or one other entry of the trace's object."""

    key: str
    value: Any
    position: int


def scan(path: str | os.PathLike[str]) -> Iterator[Entry]:
    """Yield the entries of a trace, plain or gzip, in the order of the file.

    Memory is bounded by one chunk and one value. Both of Chrome's forms are read: an object with `traceEvents`, and
    the bare list of events.

    Raises:
        TraceError: the file cannot be opened, or is damaged; entries before the damage have been yielded.
    """
    with _opened(path) as stream:
        text = _Text(path, stream)
        if text.peek() == "[":
            yield from _events(text)
        else:
            yield from _object(text)
        if text.peek():
            raise text.error("the trace has ended, but the file goes on; it may be two files joined")


def _object(text: "_Text") -> Iterator[Entry]:
    text.take("{", "a trace is a JSON object with 'traceEvents', or a list of events")
    if text.peek() == "}":
        text.take("}", "")
        return
    while True:
        position = text.position
        key = text.value()
        if not isinstance(key, str):
            raise TraceError(text.path, position, f"{shown(key)} is no key: a JSON object has strings as keys")
        text.take(":", "a ':' belongs after a key")
        if key == "traceEvents":
            yield from _events(text)
        else:
            text.peek()
            position = text.position
            yield Entry(key, text.value(), position)
        if text.take(",}", "a ',' or '}' belongs after an entry") == "}":
            return


def _events(text: "_Text") -> Iterator[Entry]:
    text.take("[", "traceEvents is a list")
    if text.peek() == "]":
        text.take("]", "")
        return
    while True:
        text.peek()
        position = text.position
        yield Entry("traceEvents", text.value(), position)
        if text.take(",]", "a ',' or ']' belongs after an event") == "]":
            return


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[io.TextIOWrapper]:
    """Open a plain or compressed file as text; a byte that is no UTF-8 becomes a replacement character."""
    try:
        with Path(path).open("rb") as file:
            magic = file.read(len(_GZIP_MAGIC))
            file.seek(0)
            raw: BinaryIO = gzip.GzipFile(fileobj=file) if magic == _GZIP_MAGIC else file  # type: ignore[assignment]
            yield io.TextIOWrapper(raw, encoding="utf-8-sig", errors="replace", newline="")
    except OSError as error:
        raise TraceError(path, None, f"cannot be opened: {error.strerror or error}") from error


class _Text:
    """The characters of a file from a moving position on, and the JSON values that stand there."""

    def __init__(self, path: str | os.PathLike[str], stream: io.TextIOWrapper) -> None:
        self.path = path
        self._stream = stream
        self._buffer = ""
        self._at = 0
        self._dropped = 0
        self._has_ended = False

    @property
    def position(self) -> int:
        """Characters from the start of the text."""
        return self._dropped + self._at

    def error(self, rule: str) -> TraceError:
        """Return an error at this position."""
        return TraceError(self.path, self.position, rule)

    def peek(self) -> str:
        """Skip white space; return the character behind it, empty at the end of the file."""
        while True:
            self._at = _SPACE.match(self._buffer, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._buffer):
                return self._buffer[self._at]
            if not self._read():
                return ""

    def take(self, chars: str, rule: str) -> str:
        """Skip white space and take one of ``chars``, which ``rule`` asks for."""
        char = self.peek()
        if not char:
            raise self.error(f"the file ends early: {rule}")
        if char not in chars:
            raise self.error(f"{rule}; found {shown(char)}")
        self._at += 1
        return char

    def value(self) -> Any:
        """Take one JSON value."""
        self.peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._buffer, self._at)
            except json.JSONDecodeError as error:
                position = self._dropped + error.pos
                if len(self._buffer) - self._at > MAX_VALUE_CHARS:
                    rule = f"no whole JSON value within {MAX_VALUE_CHARS} characters: {error.msg}"
                    raise TraceError(self.path, position, rule) from None
                if self._read():
                    continue
                rule = f"the file ends early or is damaged: {error.msg}"
                raise TraceError(self.path, position, rule) from None
            except RecursionError:
                raise self.error("a value is nested too deep to be a trace event") from None
            except ValueError as error:
                raise self.error(f"a value cannot be read: {error}") from None
            # A number at the end of the buffer may go on in the next chunk.
            if end == len(self._buffer) and self._read():
                continue
            self._at = end
            return value

    def _read(self) -> bool:
        """Append a chunk, drop what lies behind; False at the end of the file."""
        if self._has_ended:
            return False
        try:
            chunk = self._stream.read(_CHUNK_CHARS)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            rule = f"the gzip stream is damaged or cut off behind this: {error}"
            raise TraceError(self.path, self._dropped + len(self._buffer), rule) from error
        self._has_ended = not chunk
        self._dropped += self._at
        self._buffer = self._buffer[self._at :] + chunk
        self._at = 0
        return not self._has_ended
