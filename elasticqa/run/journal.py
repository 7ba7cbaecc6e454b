"""The journal of an attempt, which the database is built from, and the log of the features that it trains on."""

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from db.journal_schema import Kind
from db.storage.durable import fsync_path
from db.storage.run_files import journal_path
from elasticqa.run.line_writer import LineWriter

_ATTEMPT_FILE = re.compile(r"attempt-(\d+)(?:\.claim|-node-\d+\.jsonl)")


def claim_attempt(run_dir: Path) -> int:
    """Return the number of a new attempt, from 1, which no other process gets; call it on one rank only.

    A number is in use if its claim file or a journal of it exists.
    """
    folder = run_dir / "journal"
    folder.mkdir(parents=True, exist_ok=True)
    in_use = [int(match[1]) for entry in folder.iterdir() if (match := _ATTEMPT_FILE.fullmatch(entry.name))]
    attempt = max(in_use, default=0) + 1
    while True:
        try:
            (folder / f"attempt-{attempt:04d}.claim").touch(exist_ok=False)
        except FileExistsError:
            attempt += 1
        else:
            fsync_path(folder)
            return attempt


class Journal(LineWriter):
    """Journal of one attempt and node; `write` may be called from any thread and never waits for the disk."""

    def __init__(self, run_dir: Path, attempt: int, node_rank: int) -> None:
        super().__init__(journal_path(run_dir, attempt, node_rank), is_numbered=True)

    def write(self, kind: Kind, fields: Mapping[str, Any]) -> None:
        """Queue a line with the current time; nested values must not be changed afterwards.

        Raises:
            JournalError: the journal is closed.
            ValueError: `fields` has `n`, `t` or `kind`, which the journal sets.
        """
        line = {"n": 0, "t": time.time(), "kind": kind, **fields}
        if len(line) != len(fields) + 3:
            raise ValueError(f"{kind!r} line with fields {sorted(fields)}: the journal sets n, t and kind itself")
        self.put(line)


class FeatureLog(LineWriter):
    """Ids of the features that one rank trains on, one line a step."""

    def __init__(self, run_dir: Path, attempt: int, rank: int) -> None:
        super().__init__(run_dir / "fed" / f"attempt-{attempt:04d}-rank-{rank:05d}.jsonl", is_numbered=False)

    def write(self, step: int, ids: Sequence[int]) -> None:
        """Queue the ids of a step; `ids` (a sequence or an integer array) must not be changed afterwards."""
        self.put({"step": step, "ids": ids})
