"""JSON objects of any size, one member at a time: memory is that of the largest value, which is limited."""

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, Any

from db.importers.errors import ForeignFormatError

MOST_BYTES = 256 * 2**20
"""Of a JSON file, after decompression."""
MOST_VALUE_CHARACTERS = 2**20
"""Of one value: an entry of a streamed array, or any other member."""
_CHUNK_BYTES = 2**16
_BLANKS = re.compile(r"[ \t\n\r]*")


def members(path: Path, streamed: Collection[str] = ()) -> Iterator[tuple[str, int | None, Any]]:
    """Yield (key, None, value) for the members of the object in a file, in order.

    An array under a key of `streamed` is given entry by entry, as (key, index, entry). NaN and Infinity are
    read as floats. The file may be compressed by gzip.

    Raises:
        ForeignFormatError: it is no such object, damaged, or larger than the limits.
    """
    with _opened(path) as file:
        scanner = _Scanner(path, file)
        scanner.expect("{")
        for is_first in _once():
            if scanner.peek() == "}" and is_first:
                scanner.expect("}")
                break
            key = scanner.value()
            if not isinstance(key, str):
                raise scanner.error("a key of an object must be a text")
            scanner.expect(":")
            if key in streamed and scanner.peek() == "[":
                for index, entry in enumerate(_entries(scanner)):
                    yield key, index, entry
            else:
                yield key, None, scanner.value()
            if scanner.expect(",}") == "}":
                break
        if scanner.peek():
            raise scanner.error("something follows the end of the object")


def small_object(path: Path) -> dict[str, Any]:
    """Return the object in a file, each of its members below 1 MiB and all together too.

    Raises:
        ForeignFormatError: as `members` does.
    """
    if path.stat().st_size > MOST_VALUE_CHARACTERS:
        raise ForeignFormatError(path, "", f"{path.stat().st_size:,} bytes, at most 1 MiB is read of such a file")
    return {key: value for key, _, value in members(path)}


def _entries(scanner: "_Scanner") -> Iterator[Any]:
    scanner.expect("[")
    if scanner.peek() == "]":
        scanner.expect("]")
        return
    while True:
        yield scanner.value()
        if scanner.expect(",]") == "]":
            return


def _once() -> Iterator[bool]:
    yield True
    while True:
        yield False


def _opened(path: Path) -> IO[bytes]:
    file = path.open("rb")
    if file.peek(2)[:2] == b"\x1f\x8b":
        file.close()
        return gzip.open(path, "rb")  # type: ignore[return-value] # GzipFile is an IO[bytes] in all but name
    return file


class _Scanner:
    """Text of a file as a window that moves over it."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path = path
        self._file = file
        self._decode = codecs.getincrementaldecoder("utf-8-sig")()
        self._json = json.JSONDecoder()
        self._window = ""
        self._at = 0
        self._dropped = 0
        self._num_bytes = 0
        self._is_whole = False

    def peek(self) -> str:
        """Return the next character that is not blank, or "" at the end."""
        while True:
            match = _BLANKS.match(self._window, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._window):
                return self._window[self._at]
            if self._is_whole:
                return ""
            self._fill()

    def expect(self, characters: str) -> str:
        """Return the next character, which is one of these, and pass it."""
        found = self.peek()
        if not found or found not in characters:
            wanted = " or ".join(repr(character) for character in characters)
            raise self.error(f"expected {wanted}, found {repr(found) if found else 'the end: the file is cut off'}")
        self._at += 1
        return found

    def value(self) -> Any:
        """Return the next value and pass it."""
        if not self.peek():
            raise self.error("expected a value, found the end: the file is cut off")
        while True:
            is_complete, value, problem = self._try_value()
            if is_complete:
                return value
            if self._is_whole:
                raise self.error(f"no JSON value: {problem}")
            if len(self._window) - self._at > MOST_VALUE_CHARACTERS:
                raise self.error(f"no JSON value within 1 MiB: {problem}")
            self._fill()

    def _try_value(self) -> tuple[bool, Any, str]:
        """Return whether the window holds the next value, the value, and else why not."""
        try:
            value, end = self._json.raw_decode(self._window, self._at)
        except json.JSONDecodeError as error:
            return False, None, f"{error.msg} at character {self._dropped + error.pos:,}"
        except RecursionError:
            raise self.error("the value is nested too deep") from None
        except ValueError as error:
            raise self.error(f"the value is not usable ({error})") from None
        # A number at the edge of the window may go on behind it.
        if end == len(self._window) and not self._is_whole:
            return False, None, "the value goes on"
        self._at = end
        return True, value, ""

    def error(self, problem: str) -> ForeignFormatError:
        """Return an error that names the current character."""
        return ForeignFormatError(self._path, f"character {self._dropped + self._at:,}", problem)

    def _fill(self) -> None:
        # As much again as there is, so that a long value is not tried once a chunk.
        wanted = max(_CHUNK_BYTES, len(self._window) - self._at)
        try:
            chunk = self._file.read(wanted)
            self._num_bytes += len(chunk)
            text = self._decode.decode(chunk, final=not chunk)
        except (OSError, EOFError, zlib.error) as error:
            raise self.error(f"cannot be decompressed ({error}): the file is damaged or cut off") from error
        except UnicodeDecodeError as error:
            raise self.error(f"is not UTF-8 ({error.reason})") from error
        if self._num_bytes > MOST_BYTES:
            raise self.error(f"over {MOST_BYTES // 2**20} MiB of JSON, which is the most that is read")
        self._is_whole = not chunk
        self._dropped += self._at
        self._window = self._window[self._at :] + text
        self._at = 0
