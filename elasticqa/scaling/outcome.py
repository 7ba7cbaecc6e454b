"""What became of a run, by its own record: the scheduler only tells whether its processes are gone."""

from dataclasses import dataclass
from pathlib import Path

from elasticqa.run.journal_reader import first_line, last_end


@dataclass(frozen=True)
class Outcome:
    """The end of a run as its journal tells it."""

    status: str | None
    """`finished`, `failed` or `preempted`; None without a last word."""
    reason: str
    wall_clock_s: float | None
    """From the start of the first attempt to the end of the last; None unless finished."""
    num_attempts: int


def outcome_of(directory: Path) -> Outcome:
    """Return what the journals of a run say; a run that never began has no attempt."""
    num_attempts = len(list((directory / "journal").glob("attempt-*-node-00000.jsonl")))
    end, first = last_end(directory), first_line(directory)
    if end is None or first is None:
        return Outcome(None, "", None, num_attempts)
    status, reason = str(end.get("status")), str(end.get("reason"))
    wall_clock_s = None
    if status == "finished":
        started_at = first.get("started_at", first["t"])
        wall_clock_s = end["wall_clock_s"] if num_attempts == 1 else end["t"] - started_at
    return Outcome(status, reason, wall_clock_s, num_attempts)
