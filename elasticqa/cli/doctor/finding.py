"""What a check found: a verdict, a fact, and what to do about it."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail"]
STATUSES: tuple[Status, ...] = ("ok", "warn", "fail")


@dataclass(frozen=True)
class Finding:
    """One line of the doctor; `ok`, `warn` and `fail` make it, each text on one line."""

    check: str
    status: Status
    found: str
    advice: str | None


def ok(check: str, found: str) -> Finding:
    """Return the finding that all is well."""
    return Finding(check, "ok", _one_line(found), None)


def warn(check: str, found: str, advice: str) -> Finding:
    """Return the finding that something works only in part."""
    return Finding(check, "warn", _one_line(found), _one_line(advice))


def fail(check: str, found: str, advice: str) -> Finding:
    """Return the finding that training, or the record, cannot work so."""
    return Finding(check, "fail", _one_line(found), _one_line(advice))


def as_text(finding: Finding) -> str:
    """Return the lines for a terminal, the last one without its end."""
    line = f"{finding.status:<5} {finding.check:<12} {finding.found}"
    return line if finding.advice is None else f"{line}\n{'':<18} -> {finding.advice}"


def tally(findings: list[Finding]) -> str:
    """Return how many findings there are of each status."""
    return ", ".join(f"{sum(finding.status == status for finding in findings)} {status}" for status in STATUSES)


def first_line(error: BaseException) -> str:
    """Return the kind of an error and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _one_line(text: str) -> str:
    return " ".join(text.split())
