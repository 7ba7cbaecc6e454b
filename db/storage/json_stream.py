"""Streaming JSON reader: holds one value of a file in memory at a time, and limits its size.

Not ijson: its C backend is twice as fast, but it refuses NaN (in states of the Hugging Face Trainer) and control
characters in names (in Kineto traces), and sets no limit on the size of a value.
"""

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

_CHUNK_BYTES = 2**16
_BLANKS = re.compile(r"[ \t\n\r]*")


class JsonStreamError(ValueError):
    """A file that is not the expected JSON; the position counts characters of the uncompressed text from 0."""

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(f"character {position:,}: {problem}")
        self.position = position
        self.problem = problem


class Value(NamedTuple):
    """A member of the top-level object, or an entry of one of its arrays."""

    key: str
    entry: int | None
    """Index in the array; None for a member."""
    value: Any
    position: int


@contextmanager
def open_json(path: Path) -> Iterator[IO[bytes]]:
    """Open a file; a gzip file is decompressed, under any name."""
    with path.open("rb") as file:
        is_gzip = file.peek(2)[:2] == b"\x1f\x8b"
        yield gzip.GzipFile(fileobj=file) if is_gzip else file  # type: ignore[misc] # GzipFile reads like IO[bytes]


class JsonStream:
    """JSON text of a file, read through a moving window. NaN and Infinity become floats."""

    def __init__(
        self, file: IO[bytes], *, max_value_chars: int, max_bytes: int | None = None, is_strict: bool = True
    ) -> None:
        """Start at the beginning of a file, which gives UTF-8 with or without a byte order mark.

        Without ``is_strict``, control characters in strings are kept and invalid UTF-8 is replaced.
        """
        self._file = file
        self._max_value_chars = max_value_chars
        self._max_bytes = max_bytes
        self._decode = codecs.getincrementaldecoder("utf-8-sig")("strict" if is_strict else "replace")
        self._json = json.JSONDecoder(strict=is_strict)
        self._window = ""
        self._at = 0
        self._dropped = 0
        self._num_bytes = 0
        self._is_whole = False

    @property
    def position(self) -> int:
        """Characters before the current one."""
        return self._dropped + self._at

    def error(self, problem: str) -> JsonStreamError:
        """Return an error at this position."""
        return JsonStreamError(self.position, problem)

    def members(self, streamed: Collection[str] = ()) -> Iterator[Value]:
        """Yield the members of an object in order; an array under a key of `streamed` entry by entry."""
        self.expect("{")
        if self.peek() == "}":
            self.expect("}")
            return
        while True:
            key = self.value()
            if not isinstance(key, str):
                raise self.error("a key of an object must be a string")
            self.expect(":")
            start = self.peek()
            if key in streamed and start == "[":
                yield from self.entries(key)
            else:
                position = self.position
                yield Value(key, None, self.value(), position)
            if self.expect(",}") == "}":
                return

    def entries(self, key: str) -> Iterator[Value]:
        """Yield the entries of an array, which stands under `key`."""
        self.expect("[")
        if self.peek() == "]":
            self.expect("]")
            return
        index = 0
        while True:
            self.peek()
            position = self.position
            yield Value(key, index, self.value(), position)
            index += 1
            if self.expect(",]") == "]":
                return

    def expect_end(self) -> None:
        """Raise an error unless only white space follows."""
        if self.peek():
            raise self.error("text follows the end of the JSON value: the file may be two files joined")

    def peek(self) -> str:
        """Skip white space; return the next character, or "" at the end."""
        while True:
            self._at = _BLANKS.match(self._window, self._at).end()  # type: ignore[union-attr] # matches nothing, too
            if self._at < len(self._window):
                return self._window[self._at]
            if self._is_whole:
                return ""
            self._fill()

    def expect(self, characters: str) -> str:
        """Skip white space; return and skip the next character, which must be one of `characters`."""
        found = self.peek()
        if not found or found not in characters:
            wanted = " or ".join(repr(character) for character in characters)
            raise self.error(f"expected {wanted}, found {repr(found) if found else 'the end: the file is cut off'}")
        self._at += 1
        return found

    def value(self) -> Any:
        """Skip white space; return and skip the next value."""
        if not self.peek():
            raise self.error("expected a value, found the end: the file is cut off")
        while True:
            try:
                value, end = self._json.raw_decode(self._window, self._at)
            except json.JSONDecodeError as error:
                self._fill_or_raise(self._dropped + error.pos, error.msg)
                continue
            except RecursionError:
                raise self.error("the value is nested too deep") from None
            except ValueError as error:
                raise self.error(f"the value cannot be read ({error})") from None
            # A number at the end of the window may have more digits in the next chunk.
            if end == len(self._window) and not self._is_whole:
                self._fill_or_raise(self.position, "the value does not end")
                continue
            self._at = end
            return value

    def _fill_or_raise(self, position: int, problem: str) -> None:
        if self._is_whole:
            raise JsonStreamError(position, f"no JSON value: {problem}")
        if len(self._window) - self._at > self._max_value_chars:
            raise JsonStreamError(position, f"no JSON value within {self._max_value_chars:,} characters: {problem}")
        self._fill()

    def _fill(self) -> None:
        # Double the window, so that a long value is not parsed again for every chunk.
        wanted = max(_CHUNK_BYTES, len(self._window) - self._at)
        try:
            chunk = self._file.read(wanted)
            text = self._decode.decode(chunk, final=not chunk)
        except (OSError, EOFError, zlib.error) as error:
            raise self._error_at_end(f"cannot be decompressed ({error}): the file is damaged or cut off") from error
        except UnicodeDecodeError as error:
            raise self._error_at_end(f"is not UTF-8 ({error.reason})") from error
        self._num_bytes += len(chunk)
        if self._max_bytes is not None and self._num_bytes > self._max_bytes:
            raise self._error_at_end(f"more than {self._max_bytes // 2**20} MiB of JSON, the limit")
        self._is_whole = not chunk
        self._dropped += self._at
        self._window = self._window[self._at :] + text
        self._at = 0

    def _error_at_end(self, problem: str) -> JsonStreamError:
        return JsonStreamError(self._dropped + len(self._window), problem)
