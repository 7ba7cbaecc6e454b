"""Keep the newest whole checkpoints and the best one; remove others atomically."""

import json
import logging
import shutil
from pathlib import Path

from db.storage.durable import fsync_path
from elasticqa.checkpoint.manifest import checkpoint_directories, directory_name, has_all_bytes, step_of, write_durably

logger = logging.getLogger(__name__)

BEST = "best.json"
SET_ASIDE = "set-aside"
_REPLACED = ".replaced"
_PRUNED = ".pruned"
PARTIAL = ".partial"
"""The three suffixes mark hidden checkpoints that are being replaced, removed or written."""


def prune(directory: Path, step: int, keep: int) -> None:
    """Remove checkpoints after that of ``step`` was committed.

    The newest ``keep`` complete ones up to that step and the best one are kept. Checkpoints of later steps are removed:
    they were damaged when the attempt started; otherwise it would have resumed from them.
    """
    for kind in (_PRUNED, PARTIAL):
        for leftover in directory.glob(f".step-*{kind}"):
            shutil.rmtree(leftover, ignore_errors=True)
    found = checkpoint_directories(directory)
    whole = [path for path in found if step_of(path) <= step and has_all_bytes(path)]
    if not whole:
        return
    best = noted_best(directory)
    kept = {*whole[:keep], *(path for path in whole if best and path == best[0])}
    for path in found:
        if path not in kept:
            try:
                # Rename it first, so that a half-removed checkpoint does not look complete.
                shutil.rmtree(_put_aside(path, _PRUNED))
            except OSError as error:
                logger.warning("checkpoint %s is no longer needed, but cannot be removed: %s", path, error)


def noted_best(directory: Path) -> tuple[Path, float] | None:
    """Return the checkpoint with the highest F1 and that F1, not verified; None if there is none."""
    try:
        noted = json.loads((directory / BEST).read_text(encoding="utf-8"))
        name, f1 = str(noted["directory"]), float(noted["f1"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return next(((path, f1) for path in checkpoint_directories(directory) if path.name == name), None)


def note_best(directory: Path, step: int, f1: float) -> bool:
    """Protect a checkpoint, if it was committed, until another has a higher F1; return whether it is now the best."""
    path, before = directory / directory_name(step), noted_best(directory)
    if not path.is_dir() or (before is not None and f1 <= before[1]):
        return False
    try:
        write_durably(directory / BEST, json.dumps({"directory": path.name, "f1": f1}, allow_nan=False) + "\n")
    except OSError as error:
        logger.warning("checkpoint %s has the best F1, but cannot be marked as the best: %s", path, error)
        return False
    return True


def set_aside(directory: Path, step: int) -> list[str]:
    """Move checkpoints of later steps than ``step`` aside, and return their names, newest first."""
    newer = [path for path in checkpoint_directories(directory) if step_of(path) > step]
    place = directory / SET_ASIDE
    for path in newer:
        place.mkdir(exist_ok=True)
        shutil.rmtree(place / path.name, ignore_errors=True)
        path.rename(place / path.name)
    if newer:
        fsync_path(place)
        fsync_path(directory)
    return [path.name for path in newer]


def put_in_place(temporary: Path, final: Path) -> None:
    """Give a whole checkpoint its final name, replacing one of the same step."""
    if final.exists():  # a damaged one, or the one that this attempt resumed from without training a step
        _put_aside(final, _REPLACED)
    try:
        temporary.rename(final)
    finally:
        put_back_replaced(final.parent)
    fsync_path(final.parent)


def put_back_replaced(directory: Path) -> None:
    """Undo interrupted replacements of checkpoints, and remove leftovers of completed ones."""
    for aside in directory.glob(f".step-*{_REPLACED}"):
        final = aside.with_name(aside.name.removeprefix(".").removesuffix(_REPLACED))
        if final.exists():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.rename(final)


def _put_aside(path: Path, suffix: str) -> Path:
    aside = path.with_name(f".{path.name}{suffix}")
    shutil.rmtree(aside, ignore_errors=True)
    return path.rename(aside)
