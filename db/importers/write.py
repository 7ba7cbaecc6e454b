"""Writes the run directory of an imported run: staged beside the others, renamed once complete."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from db.importers.fields import ImportFormatError
from db.importers.run import ImportedRun
from db.journal_schema import SCHEMA_VERSION
from db.storage.durable import AddedRun, commit_run_dir, fsync_path, staged_run_dir
from db.storage.run_files import journal_path


def write_run(run: ImportedRun, runs_dir: Path) -> AddedRun:
    """Write the directory of a run; a run that was imported before stays unchanged.

    Raises:
        ImportFormatError: the directory cannot be written, or a source file was deleted.
    """
    target = runs_dir / run.run_id
    if target.exists():
        return AddedRun(run.run_id, is_new=False)
    try:
        with staged_run_dir(runs_dir) as folder:
            _write_journal(run, folder)
            for name, file in run.files:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, folder / name)
                fsync_path(folder / name)
            is_new = commit_run_dir(folder, target)
    except OSError as error:
        raise ImportFormatError(
            run.path, "", f"cannot be imported into {runs_dir} ({error.strerror or error})"
        ) from error
    return AddedRun(run.run_id, is_new)


def _write_journal(run: ImportedRun, folder: Path) -> None:
    journal = journal_path(folder, attempt=1)
    journal.parent.mkdir()
    with journal.open("w", encoding="utf-8") as stream:
        for number, (kind, t, fields) in enumerate(_lines(run), start=1):
            line = {"n": number, "t": t, "kind": kind, **fields}
            stream.write(json.dumps(line, allow_nan=False, separators=(",", ":")) + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    fsync_path(journal.parent)


def _lines(run: ImportedRun) -> Iterator[tuple[str, float, dict[str, Any]]]:
    yield (
        "attempt",
        run.started_at,
        {
            "schema_version": SCHEMA_VERSION,
            "run_id": run.run_id,
            "attempt": 1,
            "node_rank": 0,
            "provenance": "imported",
            "name": run.name,
            "note": f"imported from {run.format}",
            "config": run.config,
            "world_size": run.world_size,
            "num_nodes": None,
            "host": run.host,
            "software": run.software,
            "git": None,
            "scheduler": None,
            "command": [],
        },
    )
    yield from run.facts
    yield "end", run.ended_at, run.end
