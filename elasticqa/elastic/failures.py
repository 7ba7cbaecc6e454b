"""Who left an attempt and why: noted by whoever sees it, and the last line of an attempt that could not write its own.

A process that is killed says nothing any more. Its agent knows the signal, its peers know that it went away; the next
attempt, or the agent when there is none, makes the `end` line of it.
"""

import json
import os
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

AGENT_DIRECTORY_VARIABLE = "ELASTICQA_AGENT_DIRECTORY"
"""Where the workers of a node tell their agent which attempt they are."""

_ATTEMPT = "attempt.json"
_NEWS = "news-"
_LONGEST_LINE = 1 << 18

CERTAINTY = ("changed", "ended", "gone", "silent", "failed", "killed")
"""Kinds of departures: a later one says more of the cause. ``changed`` is no loss: a node joins, or leaves as asked."""


@dataclass(frozen=True)
class Departure:
    """What happened to a rank or a node.

    Attributes:
        kind: one of ``CERTAINTY``.
        who: ``rank 1 on host-b`` or ``node 1 on host-b``.
        what: the rest of the sentence.
        t: Unix seconds when it was seen.
    """

    kind: str
    who: str
    what: str
    t: float

    def __str__(self) -> str:
        return f"{self.who} {self.what}"


def departure(kind: str, who: str, what: str) -> Departure:
    """Return a departure of now."""
    assert kind in CERTAINTY
    return Departure(kind, who, what, time.time())


def note(directory: Path, attempt: int, writer: str, departures: Iterable[Departure]) -> None:
    """Keep what one process knows of departures; what it noted before is kept as well.

    Nothing is raised where it cannot be written: whoever notes is about to end a process.
    """
    _add(directory / "departures" / f"attempt-{attempt:04d}-{writer}.json", departures)


def _add(path: Path, departures: Iterable[Departure]) -> None:
    try:
        path.parent.mkdir(exist_ok=True)
        unfinished = path.with_suffix(".partial")
        known = [*_read(path), *departures]
        unfinished.write_text(json.dumps([asdict(item) for item in known]), encoding="utf-8")
        unfinished.rename(path)
    except OSError:
        return


def known_departures(directory: Path, attempt: int) -> list[Departure]:
    """Return what has been noted of an attempt, the surest cause first, and of equal ones the earliest."""
    paths = (directory / "departures").glob(f"attempt-{attempt:04d}-*.json")
    return _surest_first(item for path in paths for item in _read(path))


def _surest_first(departures: Iterable[Departure]) -> list[Departure]:
    return sorted(departures, key=lambda item: (-CERTAINTY.index(item.kind), item.t))


def _read(path: Path) -> list[Departure]:
    try:
        items = json.loads(path.read_text(encoding="utf-8"))
        found = [Departure(**item) for item in items]
    except (OSError, ValueError, TypeError, RecursionError):
        return []
    return [item for item in found if item.kind in CERTAINTY]


LEAVES = "leaves"


def changes(directory: Path, attempt: int, num_nodes: int) -> str:
    """Return which changes of the membership are known, as ``: node 1 on host-b leaves``; empty without any.

    Args:
        directory: of the run.
        attempt: that was asked to stop.
        num_nodes: of the attempt; where all of them leave, the job ends and no membership changes.
    """
    told = [item for item in known_departures(directory, attempt) if item.kind == "changed"]
    leaving = {item.who for item in told if item.what == LEAVES}
    sentences = dict.fromkeys(str(item) for item in told if item.what != LEAVES or len(leaving) < num_nodes)
    return ": " + "; ".join(sentences) if sentences else ""


def agent_folder() -> Path | None:
    """Return the folder of the agent of this node; None without one."""
    name = os.environ.get(AGENT_DIRECTORY_VARIABLE)
    folder = Path(name) if name else None
    return folder if folder is not None and folder.is_dir() else None


def tell_agent(directory: Path, attempt: int) -> None:
    """Tell the agent of this node, if there is one, which attempt its workers are."""
    folder = agent_folder()
    if folder is not None:
        fields = {"directory": os.fspath(directory.absolute()), "attempt": attempt}
        (folder / _ATTEMPT).write_text(json.dumps(fields), encoding="utf-8")


def attempt_of_workers(folder: Path) -> tuple[Path, int] | None:
    """Return the run directory and number of the attempt that the workers of an agent have told, if they have."""
    try:
        fields = json.loads((folder / _ATTEMPT).read_text(encoding="utf-8"))
        return Path(fields["directory"]), int(fields["attempt"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def forget_attempt(folder: Path) -> None:
    """Forget what the workers of an agent told: new ones are about to start."""
    (folder / _ATTEMPT).unlink(missing_ok=True)


def keep_news(folder: Path, writer: str, departures: Iterable[Departure]) -> None:
    """Keep the losses of a start whose workers have told no attempt yet: the next attempt is to record them.

    Args:
        folder: of the agent.
        writer: of this process alone.
        departures: of which changes are left out.
    """
    lost = [item for item in departures if item.kind != "changed"]
    if lost:
        _add(folder / f"{_NEWS}{writer}.json", lost)


def take_news() -> list[Departure]:
    """Return, once, what was kept at the agent of this node for the next attempt: of whoever left what is surest."""
    folder = agent_folder()
    paths = [] if folder is None else list(folder.glob(f"{_NEWS}*.json"))
    surest: dict[str, Departure] = {}
    for item in _surest_first(item for path in paths for item in _read(path)):
        surest.setdefault(item.who, item)
    for path in paths:
        path.unlink(missing_ok=True)
    return list(surest.values())


def end_attempt(directory: Path, attempt: int) -> None:
    """Write the `end` line of an attempt that is over and could not write it, where the cause is known.

    Call it while holding the run: nobody may write to that journal any more. Its time is that of the last line before.
    """
    lost = [item for item in known_departures(directory, attempt) if item.kind != "changed"]
    if not lost:
        return
    path = directory / "journal" / f"attempt-{attempt:04d}-node-00000.jsonl"
    try:
        with path.open("rb+") as file:
            file.seek(max(0, path.stat().st_size - _LONGEST_LINE))
            tail = file.read()
            lines = [line for line in map(_line, tail.split(b"\n")) if line is not None]
            if not lines or any(line.get("kind") == "end" for line in lines):
                return
            # What is torn stays, as a line of its own that takes a number: files only grow.
            last, is_torn = lines[-1], not tail.endswith(b"\n")
            number = last["n"] + 1 + is_torn
            end = {"n": number, "t": last["t"], "kind": "end", "status": "failed", "reason": str(lost[0])}
            file.write(b"\n" * is_torn + json.dumps(end).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        return


def _line(raw: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    is_whole = isinstance(line, dict) and isinstance(line.get("n"), int) and isinstance(line.get("t"), int | float)
    return line if is_whole else None
