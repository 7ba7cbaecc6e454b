"""JSON files of other programs, read within limits."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from db.importers.fields import ImportFormatError
from db.storage.json_stream import JsonStream, JsonStreamError, open_json

MAX_BYTES = 256 * 2**20
"""Limit of a file, after decompression."""
MAX_VALUE_CHARS = 2**20
"""Limit of one value: an entry of a streamed array, or any other member."""


def members(path: Path, streamed: Collection[str] = ()) -> Iterator[tuple[str, int | None, Any]]:
    """Yield (key, None, value) for each member of the object in a file, in order.

    An array under a key of `streamed` comes entry by entry, as (key, index, entry).

    Raises:
        ImportFormatError: the file holds no such object, is damaged, or exceeds the limits.
    """
    with open_json(path) as file:
        stream = JsonStream(file, max_value_chars=MAX_VALUE_CHARS, max_bytes=MAX_BYTES)
        try:
            for key, index, value, _ in stream.members(streamed):
                yield key, index, value
            stream.expect_end()
        except JsonStreamError as error:
            raise ImportFormatError(path, f"character {error.position:,}", error.problem) from error


def small_object(path: Path) -> dict[str, Any]:
    """Return the object in a file of at most 1 MiB.

    Raises:
        ImportFormatError: as `members` does.
    """
    if path.stat().st_size > MAX_VALUE_CHARS:
        raise ImportFormatError(path, "", f"{path.stat().st_size:,} bytes, at most 1 MiB is read of such a file")
    return {key: value for key, _, value in members(path)}
