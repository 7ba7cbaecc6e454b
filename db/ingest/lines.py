"""One line of a journal: from bytes to a JSON object, and from the object to checked values."""

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, NoReturn, get_args, get_type_hints

from db.journal_schema import Check

MAX_DEPTH = 64
"""Maximum nesting of objects and lists in a line, since parsers and printers recurse."""


class LineError(ValueError):
    """A line that breaks the schema. The message gives the rule; the caller adds file and line number."""


def parse(raw: bytes) -> dict[str, Any]:
    """Return the object of a line.

    Raises:
        LineError: the line is not a JSON object, or a database could not store it.
    """
    try:
        line = _DECODER.decode(raw.decode())
    except (ValueError, RecursionError) as error:
        raise LineError(f"is not JSON ({type(error).__name__}: {error})") from error
    if type(line) is not dict:
        raise LineError(f"is not an object but {_shown(line)}")
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and _is_deeper(line, MAX_DEPTH):
        raise LineError(f"is nested more than {MAX_DEPTH} levels deep")
    # Only an escape can produce a lone surrogate, or the NUL that PostgreSQL refuses.
    if b"\\u" in raw:
        _check_text(line)
    return line


def values_of(line: Mapping[str, Any], line_type: Any) -> dict[str, Any]:
    """Return the value of every field of a line type; a missing or null value becomes the field's default.

    Raises:
        LineError: a required value is missing, or a value breaks its rule.
    """
    values = {}
    for name, accepts, rule, default in _fields(line_type):
        value = line.get(name)
        if value is None:
            if default is MISSING:
                raise LineError(f"has no {name}, which is {rule}")
            value = default and default()
        elif not accepts(value):
            raise LineError(f"has {name}={_shown(value)}, which is not {rule}")
        values[name] = value
    return values


@cache
def _fields(line_type: Any) -> tuple[tuple[str, Callable[[Any], bool], str, Any], ...]:
    """Return name, check, rule and default of each field; a default is MISSING, None or a default factory."""
    hints = get_type_hints(line_type, include_extras=True)
    found = []
    for item in fields(line_type):
        check = check_of(hints[item.name])
        default = item.default if item.default_factory is MISSING else item.default_factory
        found.append((item.name, check.accepts, check.rule, default))
    return tuple(found)


def check_of(hint: Any) -> Check:
    """Return the check of a field, from its type hint."""
    # `Count | None` has the annotated type as its first argument; `Count` is that type itself.
    annotated = hint if hasattr(hint, "__metadata__") else get_args(hint)[0]
    check = annotated.__metadata__[0]
    assert isinstance(check, Check), hint
    return check


def _is_deeper(value: Any, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    items = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(item, levels - 1) for item in items)


def _check_text(line: Mapping[str, Any]) -> None:
    text = json.dumps(line, ensure_ascii=False)
    # Remove escaped backslashes (two characters), so that every remaining backslash starts an escape.
    if "\\u0000" in text.replace("\\\\", ""):
        raise LineError("has a text with a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise LineError(f"has a text that is not Unicode ({error.reason})") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
