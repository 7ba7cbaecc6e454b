"""Append-only record of one attempt, written off the training thread: the truth that the database indexes."""

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from db.journal_schema import Kind
from db.storage.durable import fsync_path
from elasticqa.errors import JournalError
from elasticqa.run.line_writer import LineWriter

_ATTEMPT_FILE = re.compile(r"attempt-(\d+)(?:\.claim|-node-\d+\.jsonl)")


def claim_attempt(run_dir: Path) -> int:
    """Return the number of a new attempt, from 1, that no other process has been given.

    Call it on one rank only and tell the others. A number is taken when its claim or a journal of it exists.
    """
    folder = run_dir / "journal"
    folder.mkdir(parents=True, exist_ok=True)
    taken = [int(match[1]) for entry in folder.iterdir() if (match := _ATTEMPT_FILE.fullmatch(entry.name))]
    attempt = max(taken, default=0) + 1
    while True:
        try:
            (folder / f"attempt-{attempt:04d}.claim").touch(exist_ok=False)
        except FileExistsError:
            attempt += 1
        else:
            fsync_path(folder)
            return attempt


class Journal:
    """Journal of one attempt and node. `write` may be called from any thread and never waits for the disk."""

    def __init__(self, run_dir: Path, attempt: int, node_rank: int) -> None:
        self.path = run_dir / "journal" / f"attempt-{attempt:04d}-node-{node_rank:05d}.jsonl"
        self._writer = LineWriter(self.path, _numbered)

    @property
    def error(self) -> JournalError | None:
        """What keeps lines from being durable, or None."""
        return self._writer.error

    def write(self, kind: Kind, fields: Mapping[str, Any]) -> None:
        """Queue one line of now; nested values must not be changed afterwards.

        Raises:
            ValueError: `fields` has `n`, `t` or `kind`, which the journal sets.
        """
        line = {"n": 0, "t": time.time(), "kind": kind, **fields}
        if len(line) != len(fields) + 3:
            raise ValueError(f"{kind!r} line with fields {sorted(fields)}: the journal sets n, t and kind itself")
        self._writer.put(line)

    def flush(self, timeout_s: float = 60.0) -> None:
        """Return once every line queued so far is fsynced.

        Raises:
            JournalError: a line could not be written, or not within `timeout_s`.
        """
        self._writer.flush(timeout_s)

    def close(self) -> None:
        """Flush and stop writing; a second call does nothing.

        Raises:
            JournalError: a line could not be written.
        """
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FeatureLog:
    """Feature ids that one rank fed to the model, one line a step."""

    def __init__(self, run_dir: Path, attempt: int, rank: int) -> None:
        self.path = run_dir / "fed" / f"attempt-{attempt:04d}-rank-{rank:05d}.jsonl"
        self._writer = LineWriter(self.path, _as_is)

    def write(self, step: int, ids: Sequence[int]) -> None:
        """Queue the ids of a step; `ids` (a sequence or an integer array) must not be changed afterwards."""
        self._writer.put({"step": step, "ids": ids})

    def flush(self, timeout_s: float = 60.0) -> None:
        """Return once every line queued so far is fsynced; raises JournalError as `Journal.flush` does."""
        self._writer.flush(timeout_s)

    def close(self) -> None:
        """Flush and stop writing; raises JournalError as `Journal.close` does."""
        self._writer.close()


def _numbered(line: dict[str, Any], number: int) -> dict[str, Any]:
    line["n"] = number
    return line


def _as_is(line: dict[str, Any], _: int) -> dict[str, Any]:
    return line
