"""Values as text: with units, and a dash for unknown values."""

from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

UNKNOWN = "\u2013"
_MAX_UNIX_S = 253_402_300_800
"""End of the year 9999; Python has no later dates."""
_MAX_NUMBER = 1e300
"""Larger numbers, infinity and NaN are shown without a unit."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def duration(seconds: float | None) -> str:
    """Return a time span in at most two units.

    >>> duration(0.0123), duration(9.87), duration(75), duration(7384), duration(200000)
    ('12.3 ms', '9.87 s', '1 min 15 s', '2 h 3 min', '2 d 7 h')
    """
    if seconds is None:
        return UNKNOWN
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 59.995:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    units = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    first = next(index for index, (length, _) in enumerate(units) if whole >= length)
    (length, name), (part_length, part_name) = units[first : first + 2]
    part = whole % length // part_length
    return f"{whole // length} {name} {part} {part_name}" if part else f"{whole // length} {name}"


def size(num_bytes: float | None) -> str:
    """Return a number of bytes in binary units.

    >>> size(512), size(1536), size(42949672960)
    ('512 B', '1.5 KiB', '40 GiB')
    """
    if num_bytes is None:
        return UNKNOWN
    value, unit = float(num_bytes), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.3g} {_UNITS[unit]}" if value < 1000 else f"{value:.0f} {_UNITS[unit]}"


def rate(per_second: float | None) -> str:
    """Return a throughput with three digits, or as a whole number from 100 on.

    >>> rate(3.14159), rate(275.21), rate(51234.5)
    ('3.14', '275', '51,234')
    """
    if per_second is None:
        return UNKNOWN
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.3g}"


def fixed(value: float | None, digits: int = 2) -> str:
    """Return a number with a fixed number of decimals, so that the numbers of a column line up.

    >>> fixed(81.2772), fixed(0.99552, 4)
    ('81.28', '0.9955')
    """
    return UNKNOWN if value is None else f"{value:,.{digits}f}"


def p_value(value: float | None) -> str:
    """Return a probability as papers print it.

    >>> p_value(0.1), p_value(0.0079), p_value(1e-9)
    ('0.10', '0.008', '< 0.001')
    """
    if value is None:
        return UNKNOWN
    if value < 0.001:
        return "< 0.001"
    return f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def count(value: float | None) -> str:
    """Return a count with thousands separators.

    >>> count(88524), count(2.0)
    ('88,524', '2')
    """
    return UNKNOWN if value is None else f"{value:,.10g}"


def moment(unix_s: float | None) -> str:
    """Return a time in UTC; a time outside Python's calendar is unknown.

    >>> moment(0)
    '1970-01-01 00:00 UTC'
    """
    if unix_s is None or not 0 <= unix_s < _MAX_UNIX_S:
        return UNKNOWN
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M UTC")


def machine_moment(unix_s: float) -> str:
    """Return a time for the HTML attribute `datetime`.

    >>> machine_moment(0)
    '1970-01-01T00:00:00+00:00'
    """
    if not 0 <= unix_s < _MAX_UNIX_S:
        return ""
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="seconds")


def ago(unix_s: float, now: float) -> str:
    """Return the time since a moment, in one unit.

    >>> ago(0, 30), ago(0, 150), ago(0, 90000)
    ('just now', '2 min ago', '25 h ago')
    """
    elapsed = max(0.0, now - unix_s)
    for length, name, minimum in ((86400, "d", 2), (3600, "h", 1), (60, "min", 1)):
        if elapsed >= length * minimum:
            return f"{elapsed // length:.0f} {name} ago"
    return "just now"


def value(anything: Any) -> str:
    """Return any value as a user would type it, shortened if it is long.

    >>> value(True), value(3e-05), value([1, 2]), value("ddp")
    ('yes', '3e-05', '1, 2', 'ddp')
    """
    if anything is None or anything == "":
        return UNKNOWN
    if isinstance(anything, bool):
        return "yes" if anything else "no"
    if isinstance(anything, float):
        return f"{anything:.6g}"
    text = str(anything)
    if isinstance(anything, list):
        text = ", ".join(value(item) for item in anything)
    if isinstance(anything, dict):
        text = ", ".join(f"{key} {value(item)}" for key, item in anything.items())
    return short(text)


def setting(anything: Any) -> str:
    """Return a recorded setting; null means that the user did not set it, not that it is unknown.

    >>> setting(None), setting(3e-05)
    ('not set', '3e-05')
    """
    return "not set" if anything is None else value(anything)


def breakable(text: str) -> Markup:
    """Return a text, escaped, that may break its line after an underscore.

    >>> breakable("max_steps")
    Markup('max_<wbr>steps')
    """
    return Markup("_<wbr>").join(text.split("_"))


def short(text: str, max_length: int = 300) -> str:
    """Return a text, cut to a maximum number of characters.

    >>> short("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= max_length else text[: max_length - 1] + "\u2026"


def fact(anything: Any, name: str) -> str:
    """Return a recorded fact in the unit that the ending of its name says.

    >>> fact(85899345920, "memory_bytes"), fact(0.0, "submitted_at"), fact(8.0, "setup_time_s"), fact("x", "git")
    ('80 GiB', '1970-01-01 00:00 UTC', '8 s', 'x')
    """
    is_number = isinstance(anything, int | float) and not isinstance(anything, bool)
    if not is_number or not -_MAX_NUMBER <= anything <= _MAX_NUMBER:
        return value(anything)
    for ending, formatter in (("_bytes", size), ("_at", moment), ("_s", duration)):
        if name.endswith(ending):
            return formatter(anything)
    return count(anything) if name.startswith("num_") else value(anything)


def short_device(name: str | None) -> str:
    """Return a device's name without its vendor's prefix and trademark signs.

    >>> short_device("NVIDIA H100 80GB HBM3"), short_device("Intel(R) Xeon(R) Platinum 8480+")
    ('H100 80GB HBM3', 'Intel Xeon Platinum 8480+')
    """
    if name is None:
        return UNKNOWN
    return name.removeprefix("NVIDIA ").replace("(R)", "").replace("(TM)", "")


def short_id(run_id: str) -> str:
    """Return the last characters of a ULID, which begins with the time; other ids unchanged.

    >>> short_id("01JABCDEFGHJKMNPQRSTVWXYZ0"), short_id("reported-squad")
    ('TVWXYZ0', 'reported-squad')
    """
    is_ulid = len(run_id) == 26 and run_id.isalnum()
    return run_id[-7:] if is_ulid else run_id
