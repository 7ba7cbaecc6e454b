"""Files of runs: journals and annotations with their sizes, and files that a journal names."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from db.storage.home import RUN_ID_PATTERN

REPORTED_DIR = Path(__file__).parents[1] / "reported"
"""Runs installed with the package: published results of others."""
JOURNAL_PATH = re.compile(r"journal/attempt-(\d{1,6})-node-(\d{1,6})\.jsonl")
"""Path in a run directory, with attempt and node rank."""


def journal_path(directory: Path, attempt: int, node_rank: int = 0) -> Path:
    """Return the path of the journal of one attempt and node of a run."""
    return directory / "journal" / f"attempt-{attempt:04d}-node-{node_rank:05d}.jsonl"


def main_journals(directory: Path) -> list[Path]:
    """Return the journals of a run's main node, one an attempt, in order."""
    return sorted((directory / "journal").glob("attempt-*-node-00000.jsonl"))


def file_in_run(runs_dir: Path, run_id: str, path: str) -> Path | None:
    """Return a readable regular file of a run, or None; links are followed.

    Journals are untrusted: a path may be absolute, contain `..`, or be a link to a place outside the run directory.
    For all these, and for missing files, the result is None.
    """
    try:
        root = (runs_dir / run_id).resolve()
        found = (root / path).resolve()
        is_ours = found.is_relative_to(root) and found.is_file() and os.access(found, os.R_OK)
    except (OSError, RuntimeError, ValueError):
        # The path is too long, contains NUL, or has a loop of links.
        return None
    return found if is_ours else None


@dataclass(frozen=True)
class RunFile:
    """A journal, or the annotations (attempt 0), of a run."""

    root: Path
    path: str
    run_id: str
    attempt: int
    node_rank: int
    size: int


def run_files(root: Path) -> Iterator[list[RunFile]]:
    """Yield the files of each run under a runs directory, runs and attempts in order."""
    for run in sorted(_entries(root), key=lambda entry: entry.name):
        if not RUN_ID_PATTERN.fullmatch(run.name):
            continue
        files = list(_files_of(root, run))
        if files:
            yield sorted(files, key=lambda file: (file.attempt, file.node_rank))


def _files_of(root: Path, run: os.DirEntry[str]) -> Iterator[RunFile]:
    for entry in _entries(run.path):
        if entry.name == "annotations.jsonl" and (size := _size_of(entry)) is not None:
            yield RunFile(root, f"{run.name}/{entry.name}", run.name, 0, 0, size)
        elif entry.name == "journal":
            for journal in _entries(entry.path):
                match = JOURNAL_PATH.fullmatch(f"journal/{journal.name}")
                if match and int(match[1]) and (size := _size_of(journal)) is not None:
                    path = f"{run.name}/journal/{journal.name}"
                    yield RunFile(root, path, run.name, int(match[1]), int(match[2]), size)


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    """Return the entries; empty if the directory does not exist or may not be read."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def _size_of(entry: os.DirEntry[str]) -> int | None:
    """Return the size of a regular file; None for anything else and for deleted files."""
    try:
        return entry.stat().st_size if entry.is_file() else None
    except FileNotFoundError:
        return None
