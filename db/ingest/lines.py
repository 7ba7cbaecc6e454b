"""One line of a journal: from bytes to an object, and from an object to checked columns."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from sqlalchemy import JSON, BigInteger, Boolean, Double, Integer, String, inspect

from db.models import Base

LATEST_TIME = 1e11
"""Unix seconds of the year 5138: what lies beyond is no time and no calendar could show it."""

DEEPEST = 64
"""Levels of objects and lists that a line may have: parsers and printers recurse."""


class LineError(ValueError):
    """A line that cannot be taken: says what and why, not where."""


@dataclass(frozen=True)
class Check:
    """What a value must be."""

    what: str
    accepts: Callable[[Any], bool]


INTEGER = Check("a count below 2^31", lambda value: type(value) is int and 0 <= value < 2**31)
BIG_INTEGER = Check("a count below 2^63", lambda value: type(value) is int and 0 <= value < 2**63)
NUMBER = Check("a finite number", lambda value: type(value) in (int, float) and -1e308 <= value <= 1e308)
TIME = Check("a Unix time in seconds", lambda value: type(value) in (int, float) and 0 <= value < LATEST_TIME)
BOOLEAN = Check("true or false", lambda value: type(value) is bool)
TEXT = Check("a text", lambda value: type(value) is str)
OBJECT = Check("an object", lambda value: type(value) is dict)
LIST = Check("a list", lambda value: type(value) is list)


def one_of(*values: str) -> Check:
    """Return a check for one of some words."""
    return Check(f"one of {', '.join(values)}", lambda value: type(value) is str and value in values)


@dataclass(frozen=True)
class Field:
    """One key of a line: its check, and what stands for an absent or null value."""

    name: str
    check: Check
    is_optional: bool = True


# Columns that say where a line stood; ingest knows them, the line does not.
_PLACE = frozenset({"run_id", "attempt", "node_rank", "line"})


def fields_of(model: type[Base]) -> tuple[Field, ...]:
    """Return the keys that a line gives to the columns of a table; the columns' types are the checks."""
    return tuple(
        Field(column.name, _check_of(column.name, column.type), bool(column.nullable))
        for column in inspect(model).columns
        if column.name not in _PLACE
    )


def parse(raw: bytes) -> dict[str, Any]:
    """Return the object of a line.

    Raises:
        LineError: it is no JSON object that both databases can hold.
    """
    try:
        line = _DECODER.decode(raw.decode())
    except (ValueError, RecursionError) as error:
        raise LineError(f"is no JSON ({type(error).__name__}: {error})") from error
    if type(line) is not dict:
        raise LineError(f"is no object but {_shown(line)}")
    if raw.count(b"[") + raw.count(b"{") > DEEPEST and _is_deeper(line, DEEPEST):
        raise LineError(f"is nested more than {DEEPEST} deep")
    # Only an escape can bring in what UTF-8 itself rules out, or the NUL that PostgreSQL refuses.
    if b"\\u" in raw:
        _check_text(line)
    return line


def read(line: Mapping[str, Any], fields: tuple[Field, ...]) -> dict[str, Any]:
    """Return the values of `fields`, an absent object or list as an empty one.

    Raises:
        LineError: one is missing or not of its type; names it.
    """
    row = {}
    for field in fields:
        value = line.get(field.name)
        if value is not None:
            if not field.check.accepts(value):
                raise LineError(f"has {field.name}={_shown(value)}, which is not {field.check.what}")
        elif field.check is OBJECT:
            value = {}
        elif field.check is LIST:
            value = []
        elif not field.is_optional:
            raise LineError(f"has no {field.name}, which is {field.check.what}")
        row[field.name] = value
    return row


def _check_of(name: str, kind: Any) -> Check:
    if name == "t":
        return TIME
    if isinstance(kind, JSON):
        return LIST if name in {"gpus", "hosts", "command", "tags"} else OBJECT
    if isinstance(kind, String):
        longest = kind.length
        if longest is None:
            return TEXT
        return Check(
            f"a text of at most {longest} characters",
            lambda value: type(value) is str and len(value) <= longest,
        )
    for type_, check in (
        (Boolean, BOOLEAN),
        (BigInteger, BIG_INTEGER),
        (Integer, INTEGER),
        (Double, NUMBER),
    ):
        if isinstance(kind, type_):
            return check
    raise TypeError(f"column {name} has type {kind!r}, for which there is no check")


def _is_deeper(value: Any, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    items = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(item, levels - 1) for item in items)


def _check_text(line: Mapping[str, Any]) -> None:
    text = json.dumps(line, ensure_ascii=False)
    # A backslash in a text is written as two, which must not be read as the start of an escape.
    if "\\u0000" in text.replace("\\\\", ""):
        raise LineError("has a text with a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise LineError(f"has a text that is not Unicode ({error.reason})") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
