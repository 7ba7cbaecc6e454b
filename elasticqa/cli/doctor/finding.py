"""A finding: a status, a fact, and advice on what to do about it."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """One result of a check; create it with `ok`, `warn` or `fail`. Each text is one line."""

    check: str
    status: Literal["ok", "warn", "fail"]
    found: str
    advice: str | None


def ok(check: str, found: str) -> Finding:
    """Return a finding without a problem."""
    return Finding(check, "ok", _one_line(found), None)


def warn(check: str, found: str, advice: str) -> Finding:
    """Return a finding about something that works in part only."""
    return Finding(check, "warn", _one_line(found), _one_line(advice))


def fail(check: str, found: str, advice: str) -> Finding:
    """Return a finding about something that keeps training or the database from working."""
    return Finding(check, "fail", _one_line(found), _one_line(advice))


def _one_line(text: str) -> str:
    return " ".join(text.split())
