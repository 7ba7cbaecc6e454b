"""Why attempts end: failures of ranks and nodes, and membership changes, recorded by the processes that notice them.

A process that is killed cannot record why. Its agent knows the signal, and its peers notice the closed connection. The
next attempt, or the agent if there is none, then writes the missing `end` line of the journal.
"""

import json
import os
import signal
import time
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from db.storage.run_files import journal_path
from elasticqa.elastic.stack_dumps import STACK_DUMP_SIGNAL
from elasticqa.errors import ExitCode
from elasticqa.run.journal_reader import MAX_LINE_BYTES, json_object

KINDS_BY_CERTAINTY = ("changed", "ended", "gone", "silent", "failed", "killed")
"""Kinds of recorded causes, the most certain last: if several are recorded, that one is reported.

``changed`` (a node joins or leaves) is no failure."""
KINDS_BY_LIKELIHOOD = ("failed", "changed", "silent", "gone")
"""Kinds of signs, the most likely cause last: of several signs in one detection window, that one is the cause.

``gone`` wins over ``failed``, since a lost connection usually causes the errors of other ranks. Among recorded causes
(``KINDS_BY_CERTAINTY``) ``failed`` wins: each is already a decision, and an error explains more.
"""
LEAVES = "leaves"


@dataclass(frozen=True)
class EndCause:
    """Why an attempt ends: what happened to a rank or a node.

    Attributes:
        kind: one of ``KINDS_BY_CERTAINTY``.
        who: ``rank 1 on host-b`` or ``node 1 on host-b``.
        what: the rest of the sentence.
        t: Unix seconds when it was noticed.
    """

    kind: str
    who: str
    what: str
    t: float

    @classmethod
    def now(cls, kind: str, who: str, what: str) -> Self:
        """Return a cause that is noticed now."""
        assert kind in KINDS_BY_CERTAINTY
        return cls(kind, who, what, time.time())

    @property
    def is_failure(self) -> bool:
        """Whether it is a failure; else the membership changes: a node joins, or leaves because it was asked to."""
        return self.kind != "changed"

    def __str__(self) -> str:
        return f"{self.who} {self.what}"


def cause_of_exit(rank: int, host: str, exit_code: int) -> EndCause | None:
    """Return the cause that the exit code of a worker shows; None if the worker ended because of another one."""
    who = f"rank {rank} on {host}"
    if exit_code == -STACK_DUMP_SIGNAL:
        return EndCause.now("gone", who, f"was sent {STACK_DUMP_SIGNAL.name} to dump its stacks")
    if exit_code < 0:
        return EndCause.now("killed", who, f"was killed by {_signal_name(-exit_code)}")
    if exit_code in (ExitCode.STOPPED, ExitCode.PEER_LOST):
        return None
    return EndCause.now("ended", who, f"ended with status {exit_code}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def is_refusal(exit_codes: Collection[int]) -> bool:
    """Whether workers refused the request; the others may have been stopped before they could refuse it."""
    others = {ExitCode.BAD_REQUEST, ExitCode.STOPPED, ExitCode.PEER_LOST, -STACK_DUMP_SIGNAL, -signal.SIGTERM}
    return ExitCode.BAD_REQUEST in exit_codes and others.issuperset(exit_codes)


def record_causes(run_dir: Path, attempt: int, writer: str, causes: Iterable[EndCause]) -> None:
    """Add causes to what one process has recorded of an attempt.

    A failure to write is ignored: the caller is about to end a process.

    Args:
        run_dir: run directory.
        attempt: number of the attempt.
        writer: names the process, such as ``rank-00001``.
        causes: to add.
    """
    add_causes(run_dir / "departures" / f"attempt-{attempt:04d}-{writer}.json", causes)


def add_causes(path: Path, causes: Iterable[EndCause]) -> None:
    """Add causes to a file; a failure to write is ignored."""
    try:
        path.parent.mkdir(exist_ok=True)
        unfinished = path.with_suffix(".partial")
        known = [*_read(path), *causes]
        unfinished.write_text(json.dumps([asdict(cause) for cause in known]), encoding="utf-8")
        unfinished.rename(path)
    except OSError:
        return


def recorded_causes(run_dir: Path, attempt: int) -> list[EndCause]:
    """Return the causes recorded by all processes of an attempt, the most certain first, then the earliest."""
    return read_causes((run_dir / "departures").glob(f"attempt-{attempt:04d}-*.json"))


def read_causes(paths: Iterable[Path]) -> list[EndCause]:
    """Return the causes in some files, the most certain first, then the earliest."""
    causes = [cause for path in paths for cause in _read(path)]
    return sorted(causes, key=lambda cause: (-KINDS_BY_CERTAINTY.index(cause.kind), cause.t))


def _read(path: Path) -> list[EndCause]:
    try:
        causes = [EndCause(**fields) for fields in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError, RecursionError):
        return []
    return [cause for cause in causes if cause.kind in KINDS_BY_CERTAINTY]


def membership_changes(run_dir: Path, attempt: int, num_nodes: int) -> str:
    """Return the recorded membership changes, as ``: node 1 on host-b leaves``; empty if there are none.

    Args:
        run_dir: run directory.
        attempt: number of the attempt, which was asked to stop.
        num_nodes: of the attempt; if all of them leave, the job ends and the membership does not change.
    """
    found = [cause for cause in recorded_causes(run_dir, attempt) if not cause.is_failure]
    leaving = {cause.who for cause in found if cause.what == LEAVES}
    sentences = dict.fromkeys(str(cause) for cause in found if cause.what != LEAVES or len(leaving) < num_nodes)
    return ": " + "; ".join(sentences) if sentences else ""


def write_missing_end(run_dir: Path, attempt: int) -> None:
    """Write the `end` line of an attempt that ended without one, if a failure is recorded; its time is the last line's.

    The caller must hold the lock of the run: no other process may write to that journal.
    """
    failures = [cause for cause in recorded_causes(run_dir, attempt) if cause.is_failure]
    if not failures:
        return
    path = journal_path(run_dir, attempt)
    try:
        with path.open("rb+") as file:
            file.seek(max(0, path.stat().st_size - MAX_LINE_BYTES))
            tail = file.read()
            lines = [line for line in map(_journal_line, tail.split(b"\n")) if line is not None]
            if not lines or any(line.get("kind") == "end" for line in lines):
                return
            # Do not remove an incomplete last line: journals only grow, and the line counts for ``n``.
            last, is_torn = lines[-1], not tail.endswith(b"\n")
            number = last["n"] + 1 + is_torn
            end = {"n": number, "t": last["t"], "kind": "end", "status": "failed", "reason": str(failures[0])}
            file.write(b"\n" * is_torn + json.dumps(end).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        return


def _journal_line(raw: bytes) -> dict[str, Any] | None:
    line = json_object(raw)
    is_whole = line is not None and isinstance(line.get("n"), int) and isinstance(line.get("t"), int | float)
    return line if is_whole else None
