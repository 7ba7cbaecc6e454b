"""Files that a journal names, found in the directory of their run and nowhere else."""

import os
from pathlib import Path


def file_in_run(runs_dir: Path, run_id: str, path: str) -> Path | None:
    """Return a readable regular file of a run, links followed, or None.

    A journal may come from anybody: its paths can be absolute, climb with `..`, or name a link that leads out of the
    run directory. All those are None, as is a file that is not here.

    Args:
        runs_dir: holds a directory a run.
        run_id: of a run in the record.
        path: relative to the run directory, as the journal has it.
    """
    try:
        root = (runs_dir / run_id).resolve()
        found = (root / path).resolve()
        is_ours = found.is_relative_to(root) and found.is_file() and os.access(found, os.R_OK)
    except (OSError, RuntimeError, ValueError):
        # A name too long for the file system, a loop of links, a NUL.
        return None
    return found if is_ours else None
