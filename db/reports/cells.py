"""Text of values in reports, without units; a dash for unknown values."""

import re
from datetime import UTC, datetime

UNKNOWN = "\u2013"
# Control characters, which a terminal would execute, and characters that change the text direction.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def number(value: float | None, digits: int = 2) -> str:
    """Return a number with a fixed number of decimals.

    >>> number(1234.567), number(0.99552, 4)
    ('1,234.57', '0.9955')
    """
    return UNKNOWN if value is None else f"{value:,.{digits}f}"


def significant(value: float | None, digits: int = 4) -> str:
    """Return a number with some significant digits; an integral part with more digits is kept whole.

    >>> significant(0.0123456), significant(51.325), significant(51234.5)
    ('0.01235', '51.33', '51,234')
    """
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"


def text(value: object) -> str:
    """Return one line of printable text.

    >>> text(chr(27) + "[31m" + chr(10) + "b")
    '�[31m�b'
    """
    return UNKNOWN if value is None or value == "" else _UNPRINTABLE.sub("�", str(value))


def moment(seconds: float | None) -> str:
    """Return a Unix time as UTC.

    >>> moment(0.0)
    '1970-01-01 00:00'
    """
    return UNKNOWN if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"


def interval(low: float, high: float, digits: int = 2) -> str:
    """Return an interval.

    >>> interval(1.234, 5)
    '1.23 to 5.00'
    """
    return f"{number(low, digits)} to {number(high, digits)}"
