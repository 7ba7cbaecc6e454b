"""Checkpoints that are whole or absent, and load at any world size under any strategy.

A checkpoint is written under a temporary name by all ranks (torch.distributed.checkpoint, sharded); once all are done
rank 0 writes the manifest and renames the directory. What has no manifest, or does not match it, is not a checkpoint.
"""

import json
import logging
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.optim import Optimizer

from elasticqa.errors import CheckpointError
from elasticqa.journal import JournalError
from elasticqa.manifest import (
    Manifest,
    checkpoint_directories,
    directory_name,
    fsync_directory,
    read_manifest,
    step_of,
    write_durably,
    write_manifest,
)
from elasticqa.topology import Topology

logger = logging.getLogger(__name__)

BEST = "best.json"
_REPLACED = ".replaced"
_PRUNED = ".pruned"


class Checkpointer:
    """Saves, finds, restores and prunes the checkpoints of one run."""

    def __init__(
        self, directory: Path, topology: Topology, keep: int, flush_record: Callable[[], None] = lambda: None
    ) -> None:
        """Keep the checkpoints of a run.

        Args:
            directory: of its checkpoints.
            topology: of this attempt.
            keep: the newest so many are kept, and the best.
            flush_record: makes durable what this rank has said of its steps, before a checkpoint is committed: a run
                that goes on from it does not say it again.
        """
        self._directory = directory
        self._topology = topology
        self._keep = keep
        self._flush_record = flush_record

    def save(
        self,
        step: int,
        model: nn.Module,
        optimizer: Optimizer,
        extra: Mapping[str, Any],
        *,
        progress: dict[str, Any],
        config: dict[str, Any],
    ) -> tuple[Path, Manifest]:
        """Write and commit the checkpoint of a step; every rank must call this.

        Args:
            step: optimizer steps done.
            model: as wrapped.
            optimizer: of that model.
            extra: further tensors, equal on every rank.
            progress: scalars of the trainer, for the manifest.
            config: of the run, for the manifest.

        Raises:
            CheckpointError: on every rank, if one could not write its part; nothing is left behind.
        """
        final = self._directory / directory_name(step)
        temporary = self._directory / f".{final.name}.partial"
        self._together(temporary, lambda: _make_empty(temporary), is_for_main=True)
        self._together(temporary, self._flush_record)
        state = _state(model, optimizer, extra)
        self._together(temporary, lambda: self._write(state, temporary))
        manifest = Manifest(step, progress, config, {})
        self._together(temporary, lambda: _commit(temporary, final, manifest), is_for_main=True)
        if self._topology.is_main:
            self._prune(step)
        return final, self._topology.broadcast(manifest)

    def _write(self, state: dict[str, Any], path: Path) -> None:
        with _quiet():
            state_dict_saver.save(state, checkpoint_id=path, no_dist=not self._topology.is_distributed)

    def _together(self, temporary: Path, work: Callable[[], None], *, is_for_main: bool = False) -> None:
        """Do a part of a save, and raise on every rank if it failed on one."""
        problem = None
        if self._topology.is_main or not is_for_main:
            try:
                work()
            except (OSError, JournalError) as error:
                problem = str(error)
            except CheckpointException as error:
                problem = _cause(error)
        problem = self._topology.first(problem)
        if problem is None:
            return
        if self._topology.is_main:
            shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointError(
            f"checkpoint {temporary} could not be written: {problem}; the last whole one stays; free some space"
        )

    def _prune(self, step: int) -> None:
        """Remove all but the newest ones up to the step just committed, and the best.

        One of a later step was not whole when this attempt began, or the attempt would have gone on from it.
        """
        for leftover in self._directory.glob(f".step-*{_PRUNED}"):
            shutil.rmtree(leftover, ignore_errors=True)
        found = checkpoint_directories(self._directory)
        of_lineage = [path for path in found if step_of(path) <= step]
        best = self.best()
        kept = {*of_lineage[: self._keep], *(path for path in of_lineage if best and path == best[0])}
        for path in found:
            if path not in kept:
                _remove(path)

    def keep_best(self, step: int, f1: float) -> bool:
        """Keep a checkpoint from being pruned while no other one has a higher F1; only rank 0 writes.

        Args:
            step: of the checkpoint; one that has not been committed is not kept.
            f1: percent, of the model in it.

        Returns:
            Whether it is the best now; always False on other ranks.
        """
        path, before = self._directory / directory_name(step), self.best()
        is_better = path.is_dir() and (before is None or f1 > before[1])
        if not self._topology.is_main or not is_better:
            return False
        unfinished = self._directory / f".{BEST}.partial"
        try:
            write_durably(unfinished, json.dumps({"directory": path.name, "f1": f1}, allow_nan=False) + "\n")
            unfinished.rename(self._directory / BEST)
            fsync_directory(self._directory)
        except OSError as error:
            logger.warning("checkpoint %s has the best F1 but cannot be noted as such: %s", path, error)
            return False
        return True

    def best(self) -> tuple[Path, float] | None:
        """Return the checkpoint with the highest F1 and that F1, not verified; None if none has been noted."""
        try:
            noted = json.loads((self._directory / BEST).read_text(encoding="utf-8"))
            name, f1 = str(noted["directory"]), float(noted["f1"])
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None
        return next(((path, f1) for path in checkpoint_directories(self._directory) if path.name == name), None)

    def newest_whole(self) -> tuple[Path, Manifest] | None:
        """Return the newest checkpoint that matches its manifest; every rank must call this.

        Damaged ones are skipped with a warning that names them.
        """
        found = None
        if self._topology.is_main:
            _put_back_replaced(self._directory)
            for path in checkpoint_directories(self._directory):
                try:
                    found = path, read_manifest(path, verify=True)
                    break
                except CheckpointError as error:
                    logger.warning("%s; trying an older one", error)
        return self._topology.broadcast(found)

    def restore(self, path: Path, model: nn.Module, optimizer: Optimizer, extra: Mapping[str, Any]) -> None:
        """Load a checkpoint into model, optimizer and the tensors of ``extra``; every rank must call this."""
        state = _state(model, optimizer, extra)
        with _quiet():
            state_dict_loader.load(state, checkpoint_id=path, no_dist=not self._topology.is_distributed)
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])


def _state(model: nn.Module, optimizer: Optimizer, extra: Mapping[str, Any]) -> dict[str, Any]:
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state, "extra": dict(extra)}


def _make_empty(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)
    path.mkdir(parents=True)


def _commit(temporary: Path, final: Path, manifest: Manifest) -> None:
    write_manifest(temporary, manifest)
    if final.exists():  # a damaged one, or the one that this attempt went on from without a step of its own
        _put_aside(final, _REPLACED)
    try:
        temporary.rename(final)
    finally:
        _put_back_replaced(final.parent)
    fsync_directory(final.parent)


def _put_aside(path: Path, suffix: str) -> Path:
    aside = path.with_name(f".{path.name}{suffix}")
    shutil.rmtree(aside, ignore_errors=True)
    return path.rename(aside)


def _put_back_replaced(directory: Path) -> None:
    """Undo the replacement of a checkpoint that did not come to its end, and tidy up after the others."""
    for aside in directory.glob(f".step-*{_REPLACED}"):
        final = aside.with_name(aside.name.removeprefix(".").removesuffix(_REPLACED))
        if final.exists():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.rename(final)


def _remove(path: Path) -> None:
    try:
        # Under another name first: half of a checkpoint must not look like one.
        shutil.rmtree(_put_aside(path, _PRUNED))
    except OSError as error:
        logger.warning("checkpoint %s is not needed any more but cannot be removed: %s", path, error)


def _cause(error: CheckpointException) -> str:
    """Return what the first rank that failed says, on one line."""
    first, _ = error.failures[min(error.failures)]
    lines = str(first).strip().splitlines()
    return f"{type(first).__name__}: {lines[0]}" if lines else type(first).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep torch from warning that a single process saves as a single process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield
