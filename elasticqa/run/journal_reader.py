"""What is read back of a run's journals, of its main node's: who began it, how it was set up, how it ended."""

import json
from pathlib import Path
from typing import Any

_LONGEST_LINE = 1 << 18
"""Bytes; an `attempt` line with its command and an `end` line are some thousands."""
_SETUP_WITHIN = 1 << 20
"""Bytes from the beginning of a journal, in which its `setup` line is looked for."""


def journals_of(directory: Path) -> list[Path]:
    """Return the journals of a run's attempts, in order."""
    return sorted((directory / "journal").glob("attempt-*-node-00000.jsonl"))


def first_line(directory: Path) -> dict[str, Any] | None:
    """Return the `attempt` line of a run's first attempt, or None if nothing has been recorded there."""
    return next(filter(None, map(line_of, journals_of(directory))), None)


def attempt_line(directory: Path, attempt: int) -> dict[str, Any] | None:
    """Return the `attempt` line of one attempt, or None if it has recorded nothing."""
    return line_of(journal_path(directory, attempt))


def journal_path(directory: Path, attempt: int) -> Path:
    """Return where an attempt's journal is, of the main node."""
    return directory / "journal" / f"attempt-{attempt:04d}-node-00000.jsonl"


def line_of(path: Path) -> dict[str, Any] | None:
    """Return the first line of a journal, or None if nothing has been recorded there."""
    try:
        with path.open("rb") as file:
            return _object(file.readline(_LONGEST_LINE))
    except OSError:
        return None


def setup_of(path: Path) -> dict[str, Any] | None:
    """Return the `setup` line of a journal, or None if its attempt has not come so far."""
    try:
        with path.open("rb") as file:
            head = file.read(_SETUP_WITHIN)
    except OSError:
        return None
    lines = (_object(raw) for raw in head.split(b"\n") if b'"setup"' in raw)
    return next((line for line in lines if line is not None and line.get("kind") == "setup"), None)


def digests_of(directory: Path) -> dict[str, str]:
    """Return what a run said first of the content of its `dataset` and its `model`, as far as it has come."""
    found: dict[str, str] = {}
    for setup in filter(None, map(setup_of, journals_of(directory))):
        for kind in {"dataset", "model"} - found.keys():
            value = setup.get(kind)
            digest = value.get("digest") if isinstance(value, dict) else None
            if isinstance(digest, str):
                found[kind] = digest
        if len(found) == 2:
            break
    return found


def newest_line(directory: Path) -> dict[str, Any] | None:
    """Return the `attempt` line of a run's newest attempt that has come so far; None if nothing has been recorded."""
    return next(filter(None, map(line_of, reversed(journals_of(directory)))), None)


def last_end(directory: Path) -> dict[str, Any] | None:
    """Return the `end` line of a run's newest attempt, or None if that attempt has none."""
    journals = journals_of(directory)
    if not journals:
        return None
    try:
        with journals[-1].open("rb") as file:
            file.seek(max(0, journals[-1].stat().st_size - _LONGEST_LINE))
            tail = file.read().split(b"\n")
    except OSError:
        return None
    for raw in reversed(tail):
        line = _object(raw)
        if line is not None and line.get("kind") == "end":
            return line
    return None


def is_finished(directory: Path) -> bool:
    """Whether the newest attempt of a run trained to its last step."""
    end = last_end(directory)
    return end is not None and end.get("status") == "finished"


def _object(raw: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None
