"""A finding: a status, a fact, and advice on what to do about it."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail"]
STATUSES: tuple[Status, ...] = ("ok", "warn", "fail")


@dataclass(frozen=True)
class Finding:
    """One result of a check; create it with `ok`, `warn` or `fail`. Each text is one line."""

    check: str
    status: Status
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


def as_text(finding: Finding) -> str:
    """Return the finding as text for a terminal, without a final line break."""
    line = f"{finding.status:<5} {finding.check:<12} {finding.found}"
    return line if finding.advice is None else f"{line}\n{'':<18} -> {finding.advice}"


def tally(findings: list[Finding]) -> str:
    """Return the number of findings per status."""
    return ", ".join(f"{sum(finding.status == status for finding in findings)} {status}" for status in STATUSES)


def _one_line(text: str) -> str:
    return " ".join(text.split())
