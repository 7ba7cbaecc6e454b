"""An imported run as lines of the journal, and the run directory written from it."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any, TypeVar

from db.importers.fields import ImportFormatError, storable
from db.importers.metric_names import OF_EVALUATION, OF_STEP, JournalField
from db.journal_schema import LATEST_TIME, SCHEMA_VERSION
from db.storage.durable import AddedRun, commit_run_dir, fsync_path, staged_run_dir
from db.storage.run_files import journal_path

KeyT = TypeVar("KeyT")

MAX_POINTS = 500_000
"""Steps and evaluations of one run; they take about 400 MB of memory."""
_MAX_NAMED_STEPS = 100


@dataclass(frozen=True, kw_only=True)
class ImportedRun:
    """Everything that was read of a run; times are Unix seconds."""

    format: str
    """Display name, such as "Hugging Face Trainer"."""
    path: Path
    """The imported file or folder."""
    digest: str
    """SHA-256 of the content, in hexadecimal."""
    started_at: float
    ended_at: float
    name: str | None = None
    world_size: int | None = None
    host: dict[str, Any] | None = None
    config: dict[str, Any] = field(default_factory=dict)
    software: dict[str, Any] = field(default_factory=dict)
    facts: tuple[tuple[str, float, dict[str, Any]], ...] = ()
    """(kind, t, fields) of each line between the first and the last."""
    end: dict[str, Any] = field(default_factory=dict)
    files: tuple[tuple[str, Path], ...] = ()
    """(path in the run directory, file to copy there)."""

    @property
    def run_id(self) -> str:
        """Run id; equal content has the same id."""
        return f"imported-{self.digest[:16]}"


class MetricPoints:
    """Metrics by step and by evaluation, collected from values in any order."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._steps: dict[int, dict[str, Any]] = {}
        self._evaluations: dict[tuple[str, int], dict[str, Any]] = {}

    @property
    def last_step(self) -> int:
        """The highest step so far, or 0."""
        return max((*self._steps, *(step for _, step in self._evaluations)), default=0)

    def add(self, meaning: JournalField, step: int, t: float, value: float | None) -> None:
        """Add one value; it replaces an earlier value of the same step and field.

        An epoch below 0 or of 2^31 or more is ignored.
        """
        if meaning.split is not None:
            self._at(self._evaluations, (meaning.split, step), t)[meaning.field] = value
        elif meaning.field not in ("epoch", "passes"):
            self._at(self._steps, step, t)[meaning.field] = value
        elif value is not None and 0 <= value < 2**31:
            point = self._at(self._steps, step, t)
            # passes=1.0 is the end of epoch 0.
            point["epoch"] = int(value) if meaning.field == "epoch" else max(0, ceil(value) - 1)

    def final_loss(self) -> float | None:
        """Return the mean of the losses logged in the last epoch, or None without epochs."""
        last = max((point["epoch"] for point in self._steps.values() if "epoch" in point), default=None)
        losses = [
            point["loss"]
            for point in self._steps.values()
            if last is not None and point.get("epoch") == last and point.get("loss") is not None
        ]
        return sum(losses) / len(losses) if losses else None

    def lines(self, ended_at: float) -> Iterator[tuple[str, float, dict[str, Any]]]:
        """Yield (kind, t, fields) of steps and evaluations, each in order, then an event if losses are not finite."""
        for step, point in sorted(self._steps.items()):
            if set(point) - {"t", "epoch"}:
                yield "step", point["t"], _step_line(step, point)
        for (split, step), point in sorted(self._evaluations.items(), key=lambda item: (item[0][1], item[0][0])):
            if set(point) & {"loss", "em", "f1"}:
                yield "evaluation", point["t"], _evaluation_line(step, split, point)
        steps = sorted(step for step, point in self._steps.items() if "loss" in point and point["loss"] is None)
        if steps:
            message = f"the loss of {len(steps)} logged steps is not finite, first at step {steps[0]}"
            data = {"num_steps": len(steps), "steps": steps[:_MAX_NAMED_STEPS]}
            yield "event", ended_at, {"name": "non_finite_loss", "message": message, "data": data}

    def _at(self, points: dict[KeyT, dict[str, Any]], key: KeyT, t: float) -> dict[str, Any]:
        point = points.get(key)
        if point is None:
            if len(self._steps) + len(self._evaluations) >= MAX_POINTS:
                raise ImportFormatError(self._path, "", f"more than {MAX_POINTS:,} logged steps, the limit")
            point = points[key] = {"t": t}
        point["t"] = max(point["t"], t)
        return point


def _step_line(step: int, point: dict[str, Any]) -> dict[str, Any]:
    known = {name: point.get(name) for name in sorted(OF_STEP)}
    # `samples_seen` stays None: passes count batches, and the last batch of an epoch is smaller.
    return {"step": step, **known, "samples_seen": None, "is_warmup": False}


def _evaluation_line(step: int, split: str, point: dict[str, Any]) -> dict[str, Any]:
    known = {name: point.get(name) for name in sorted(OF_EVALUATION)}
    count = known["num_features"]
    known["num_features"] = int(count) if count is not None and 0 <= count < 2**31 else None
    return {"step": step, "split": split, **known}


def digest_of(format_name: str, files: Sequence[Path]) -> str:
    """Return the SHA-256 of a format's name and the contents of the files, in order, without their names."""
    digest = hashlib.sha256(format_name.encode())
    for file in files:
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").hexdigest().encode())
    return digest.hexdigest()


def changed_at(path: Path) -> float:
    """Return the modification time of a file, in Unix seconds within the range of the record."""
    return min(max(0.0, path.stat().st_mtime), LATEST_TIME - 1)


def name_of(folder: Path) -> str:
    """Return a name for the run in a folder: the folder's name, or PARENT/FOLDER if that is generic."""
    resolved = folder.resolve()
    is_generic = resolved.name.startswith(("version_", "checkpoint-"))
    return storable(f"{resolved.parent.name}/{resolved.name}" if is_generic else resolved.name)


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
