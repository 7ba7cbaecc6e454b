"""Finds files named by a journal, only inside the directory of their run."""

import os
from pathlib import Path


def file_in_run(runs_dir: Path, run_id: str, path: str) -> Path | None:
    """Return a readable regular file of a run, or None; links are followed.

    Journals are untrusted: a path may be absolute, contain `..`, or be a link to a place outside the run directory.
    For all these, and for missing files, the result is None.

    Args:
        runs_dir: contains one directory per run.
        run_id: of a run in the record.
        path: relative to the run directory, from the journal.
    """
    try:
        root = (runs_dir / run_id).resolve()
        found = (root / path).resolve()
        is_ours = found.is_relative_to(root) and found.is_file() and os.access(found, os.R_OK)
    except (OSError, RuntimeError, ValueError):
        # The name is too long or contains NUL, or links form a loop.
        return None
    return found if is_ours else None
