"""Read a trace file as a stream of top-level entries and events."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from db.storage.json_stream import JsonStream, JsonStreamError, open_json

MAX_VALUE_CHARS = 8 << 20
"""Limit of an event or metadata entry; Kineto's longest entries list the ranks of process groups."""


class TraceError(ValueError):
    """A file that is not a readable trace.

    The position is in characters of the uncompressed text, from 0; None if the error concerns the whole file.
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
    """One event (key `traceEvents`), or another entry of the trace's top-level object."""

    key: str
    value: Any
    position: int


def scan(path: str | os.PathLike[str]) -> Iterator[Entry]:
    """Yield the entries of a trace, plain or gzip, in the order of the file.

    Holds one chunk and one value in memory. Accepts both of Chrome's formats: an object with `traceEvents`, and a list
    of events.

    Raises:
        TraceError: the file cannot be opened or is damaged; entries before the damage have been yielded.
    """
    try:
        with open_json(Path(path)) as file:
            # Kineto does not escape names, so they may contain control characters and invalid UTF-8.
            yield from _entries(JsonStream(file, max_value_chars=MAX_VALUE_CHARS, is_strict=False))
    except JsonStreamError as error:
        raise TraceError(path, error.position, error.problem) from error
    except OSError as error:
        raise TraceError(path, None, f"cannot be opened: {error.strerror or error}") from error


def _entries(stream: JsonStream) -> Iterator[Entry]:
    start = stream.peek()
    if start and start not in "[{":
        raise stream.error("a trace is a JSON object with 'traceEvents', or a list of events")
    values = stream.entries("traceEvents") if start == "[" else stream.members(streamed=("traceEvents",))
    for key, index, value, position in values:
        if key == "traceEvents" and index is None:
            raise JsonStreamError(position, "traceEvents is not a list")
        yield Entry(key, value, position)
    stream.expect_end()
