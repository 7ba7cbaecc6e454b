"""Reads lines of a run's journals on its main node: its attempts, their setup and their end."""

import json
from pathlib import Path
from typing import Any

from db.storage.run_files import main_journals

MAX_LINE_BYTES = 1 << 18
"""Limit of a line; `attempt` lines (with the command) and `end` lines have some thousand bytes."""
_MAX_SETUP_BYTES = 1 << 20
"""Maximum offset of the `setup` line in a journal."""


def json_object(raw: bytes) -> dict[str, Any] | None:
    """Return the JSON object in ``raw``, or None if it holds anything else."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def first_attempt_line(directory: Path) -> dict[str, Any] | None:
    """Return the `attempt` line of a run's first attempt, or None if the run has recorded nothing."""
    return next(filter(None, map(read_attempt_line, main_journals(directory))), None)


def newest_attempt_line(directory: Path) -> dict[str, Any] | None:
    """Return the `attempt` line of a run's newest attempt that has one, or None if the run has recorded nothing."""
    return next(filter(None, map(read_attempt_line, reversed(main_journals(directory)))), None)


def read_attempt_line(journal: Path) -> dict[str, Any] | None:
    """Return the first line of a journal, or None if it has none or cannot be read."""
    try:
        with journal.open("rb") as file:
            return json_object(file.readline(MAX_LINE_BYTES))
    except OSError:
        return None


def read_setup_line(journal: Path) -> dict[str, Any] | None:
    """Return the `setup` line of a journal, or None if its attempt ended before the setup was complete."""
    try:
        with journal.open("rb") as file:
            head = file.read(_MAX_SETUP_BYTES)
    except OSError:
        return None
    lines = (json_object(raw) for raw in head.split(b"\n") if b'"setup"' in raw)
    return next((line for line in lines if line is not None and line.get("kind") == "setup"), None)


def recorded_digests(directory: Path) -> dict[str, str]:
    """Return the first recorded digests of a run's `dataset` and `model`; what is not recorded is left out."""
    found: dict[str, str] = {}
    for setup in filter(None, map(read_setup_line, main_journals(directory))):
        for kind in {"dataset", "model"} - found.keys():
            value = setup.get(kind)
            digest = value.get("digest") if isinstance(value, dict) else None
            if isinstance(digest, str):
                found[kind] = digest
        if len(found) == 2:
            break
    return found


def newest_end_line(directory: Path) -> dict[str, Any] | None:
    """Return the `end` line of a run's newest attempt, or None if that attempt has none."""
    journals = main_journals(directory)
    if not journals:
        return None
    try:
        with journals[-1].open("rb") as file:
            file.seek(max(0, journals[-1].stat().st_size - MAX_LINE_BYTES))
            tail = file.read().split(b"\n")
    except OSError:
        return None
    lines = filter(None, map(json_object, reversed(tail)))
    return next((line for line in lines if line.get("kind") == "end"), None)


def is_finished(directory: Path) -> bool:
    """Whether the newest attempt of a run trained to its last step."""
    end = newest_end_line(directory)
    return end is not None and end.get("status") == "finished"
