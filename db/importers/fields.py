"""Checked values of imported files: finite numbers, counts, and texts that both databases can store."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_CHARACTERS = 2_000
MAX_SETTINGS = 500
_DEEPEST_SETTING = 6
# PostgreSQL refuses NUL; UTF-8 cannot encode lone surrogates.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class ImportFormatError(ValueError):
    """A file that cannot be imported; the message is one line with file, position and rule."""

    def __init__(self, path: Path, place: str, problem: str) -> None:
        message = f"{path}: {place}: {problem}" if place else f"{path}: {problem}"
        # Names and values may contain line breaks.
        super().__init__(" ".join(message.split()))


@dataclass(frozen=True)
class Fields:
    """An object of a file, with its position for error messages."""

    path: Path
    place: str
    values: Mapping[str, Any]

    def number(self, name: str) -> float | None:
        """Return a finite number, or None if it is absent, null, NaN or infinite.

        Raises:
            ImportFormatError: the value has another type or range.
        """
        value = self.values.get(name)
        if value is None:
            return None
        if type(value) not in (int, float):
            raise self.error(f"{name}={shown(value)} is not a number")
        try:
            number = float(value)
        except OverflowError:
            raise self.error(f"{name}={shown(value)} is too large") from None
        return number if math.isfinite(number) else None

    def at_least_zero(self, name: str) -> float | None:
        """Return a finite number of at least 0, or None as `number` does."""
        number = self.number(name)
        if number is not None and number < 0:
            raise self.error(f"{name}={number} is negative")
        return number

    def count(self, name: str) -> int | None:
        """Return a count below 2^31 (integral floats are accepted), or None if it is absent or null."""
        value = self.values.get(name)
        if value is None:
            return None
        is_whole = type(value) is int or (type(value) is float and value.is_integer())
        if not is_whole or not 0 <= value < 2**31:
            raise self.error(f"{name}={shown(value)} is not a count below 2^31")
        return int(value)

    def text(self, name: str) -> str | None:
        """Return a text that both databases can store, or None if it is absent, empty or not a string."""
        value = self.values.get(name)
        return storable(value) if isinstance(value, str) and value else None

    def error(self, problem: str) -> ImportFormatError:
        """Return an error with this position."""
        return ImportFormatError(self.path, self.place, problem)


def storable(text: str) -> str:
    """Return the text without characters that a database refuses, cut to 2,000 characters.

    >>> storable("a" + chr(0) + "b") == "a" + chr(0xFFFD) + "b"
    True
    """
    return _UNSTORABLE.sub("�", text[:MAX_CHARACTERS])


def shown(value: Any) -> str:
    """Return a value for a message, in at most 60 characters."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**50:
        return "an integer of more than 50 digits"
    text = repr(value[:60]) if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def settings(path: Path, values: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a program's settings as one flat object; nested names are joined by dots.

    Numbers that are not finite become None, values of other types become strings.

    Raises:
        ImportFormatError: there are more than 500, or they are nested more than 6 levels deep.
    """
    flat: dict[str, Any] = {}
    _flatten(path, values, "", flat)
    return flat


def _flatten(path: Path, values: Mapping[Any, Any], prefix: str, flat: dict[str, Any]) -> None:
    if prefix.count(".") > _DEEPEST_SETTING:
        raise ImportFormatError(path, prefix[:60], f"settings are nested deeper than {_DEEPEST_SETTING} levels")
    for key, value in values.items():
        name = storable(f"{prefix}{key}")
        if isinstance(value, Mapping):
            _flatten(path, value, f"{name}.", flat)
        elif len(flat) >= MAX_SETTINGS:
            raise ImportFormatError(path, name[:60], f"more than {MAX_SETTINGS} settings")
        else:
            flat[name] = _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else str(shown(value))
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return storable(value if isinstance(value, str) else repr(value)[:MAX_CHARACTERS])
