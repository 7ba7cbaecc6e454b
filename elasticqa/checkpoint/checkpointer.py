"""Checkpoints that are whole or absent, and load at any world size under any strategy.

A save blocks training only while the state is copied to host memory. A thread of each rank then writes its share under
a temporary name (torch.distributed.checkpoint, sharded); once all are done rank 0 writes the manifest and renames the
directory. What has no manifest, or does not match it, is not a checkpoint.
"""

import logging
import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta
from pathlib import Path
from typing import Any

from torch import nn
from torch.distributed.checkpoint import state_dict_loader
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import set_state_dict
from torch.optim import Optimizer

from elasticqa.checkpoint.async_writer import Committed, Saving, Writer, cause_of
from elasticqa.checkpoint.manifest import (
    Manifest,
    amend_manifest,
    checkpoint_directories,
    directory_name,
    read_manifest,
)
from elasticqa.checkpoint.retention import note_best, put_back_replaced, set_aside
from elasticqa.checkpoint.staging import Staging, state_of
from elasticqa.distributed.topology import Topology
from elasticqa.errors import CheckpointError, JournalError

logger = logging.getLogger(__name__)

_WRITE_TIMEOUT = timedelta(hours=1)
"""For the slowest rank to write its share; that all ranks live is watched elsewhere."""


def _ignore(_: Committed) -> None:
    """Nobody wants to know."""


class Checkpointer:
    """Saves, finds, restores and prunes the checkpoints of one run; at most one save is on its way."""

    def __init__(
        self, directory: Path, topology: Topology, keep: int, flush_record: Callable[[], None] = lambda: None
    ) -> None:
        """Keep the checkpoints of a run; every rank must call this.

        Args:
            directory: of its checkpoints.
            topology: of this attempt.
            keep: the newest so many are kept, and the best.
            flush_record: makes durable what this rank has said of its steps, before a checkpoint is committed: a run
                that goes on from it does not say it again. Called in a thread.
        """
        self._directory = directory
        self._topology = topology
        self._staging = Staging(topology.device)
        # Ranks agree in their threads while their main threads exchange gradients: that takes a group of its own.
        self._writer = Writer(directory, topology.apart(_WRITE_TIMEOUT), keep, flush_record)
        self._executor = ThreadPoolExecutor(1, "checkpoint")
        self._saving: Saving | None = None
        self.skipped: list[str] = []
        """What ``newest_whole`` said of damaged checkpoints, on rank 0."""
        # torch would warn that a single process saves as a single process.
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")

    def prepare(self, model: nn.Module, optimizer: Optimizer, extra: Mapping[str, Any]) -> None:
        """Do ahead, once the optimizer has its state, what would make the first save slower than the others."""
        self.finish()
        self._staging.copy(model, optimizer, extra)

    def start(
        self,
        manifest: Manifest,
        model: nn.Module,
        optimizer: Optimizer,
        extra: Mapping[str, Any],
        on_commit: Callable[[Committed], None] = _ignore,
    ) -> None:
        """Begin to save what the state is now, after the save before has ended; every rank must call this.

        Args:
            manifest: what the checkpoint says of itself, but its files; that of rank 0 counts.
            model: as wrapped.
            optimizer: of that model.
            extra: further tensors, equal on every rank.
            on_commit: called on rank 0, in a thread, as soon as the checkpoint is whole.

        Raises:
            CheckpointError: on every rank, if one could not write its part of the save before.
        """
        self.finish()
        began = time.monotonic()
        state = self._staging.copy(model, optimizer, extra)
        saving = Saving(manifest, began, time.monotonic())
        saving.outcome = self._executor.submit(self._writer.write, saving, state, on_commit)
        self._saving = saving

    @property
    def has_failed(self) -> bool:
        """Whether the save on its way is known here to have failed; other ranks may know it a little later."""
        outcome = None if self._saving is None else self._saving.outcome
        return outcome is not None and outcome.done() and outcome.result() is not None

    def finish(self) -> None:
        """Return once no save is on its way; every rank must call this.

        Raises:
            CheckpointError: on every rank, if one could not write its part; nothing is left of that save. It is a
                `RunGoneError` where that is since the run directory is gone.
        """
        saving, self._saving = self._saving, None
        if saving is None:
            return
        saving.waiting_since = time.monotonic()
        problem = saving.outcome.result()
        if problem is not None:
            raise problem

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
        """Save and return when it is committed: ``start`` and ``finish`` in one; every rank must call this."""
        self.start(Manifest(step, progress, config), model, optimizer, extra)
        self.finish()
        path = self._directory / directory_name(step)
        return path, self._topology.on_main(lambda: read_manifest(path, verify=False))

    def close(self) -> None:
        """Let a save that is on its way come to its end, whatever it is, and save no more."""
        if self._saving is not None:
            wait([self._saving.outcome])
        self._executor.shutdown()

    def keep_best(self, step: int, f1: float) -> bool:
        """Keep a committed checkpoint while no other one has a higher F1, in percent; only rank 0 does, and says so."""
        return self._topology.is_main and note_best(self._directory, step, f1)

    def amend(self, step: int, progress: Mapping[str, Any]) -> None:
        """Put what an evaluation has found into the progress of a committed checkpoint; only rank 0 does.

        What has been said of it is durable before. Where it cannot be written, a warning says so, and a run that goes
        on from there evaluates once more.
        """
        path = self._directory / directory_name(step)
        if not self._topology.is_main or not path.is_dir():
            return
        try:
            self._writer.flush_record()
            amend_manifest(path, progress)
        except (CheckpointError, JournalError, OSError) as error:
            logger.warning("checkpoint %s cannot be told of its evaluation: %s", path, error)

    def newest_whole(self) -> tuple[Path, Manifest] | None:
        """Return the newest checkpoint that matches its manifest; every rank must call this.

        Damaged ones are skipped with a warning that names them; ``skipped`` has it on rank 0.
        """
        found = None
        if self._topology.is_main:
            put_back_replaced(self._directory)
            for path in checkpoint_directories(self._directory):
                try:
                    found = path, read_manifest(path, verify=True)
                    break
                except CheckpointError as error:
                    self.skipped.append(f"{error}; trying an older one")
                    logger.warning("%s", self.skipped[-1])
        return self._topology.broadcast(found)

    def named(self, path: Path) -> tuple[Path, Manifest]:
        """Return a checkpoint that has been verified, with its manifest; every rank must call this.

        Raises:
            CheckpointError: on every rank, if it cannot be read any more.
        """
        return path, self._topology.on_main(lambda: read_manifest(path, verify=False))

    def set_newer_aside(self, step: int) -> list[str]:
        """Move checkpoints of later steps out of the way and return their names; every rank must call this."""
        return self._topology.broadcast(set_aside(self._directory, step) if self._topology.is_main else [])

    def restore(self, path: Path, model: nn.Module, optimizer: Optimizer, extra: Mapping[str, Any]) -> None:
        """Load a checkpoint into model, optimizer and the tensors of ``extra``; every rank must call this.

        Raises:
            CheckpointError: it is of another model.
        """
        state = state_of(model, optimizer, extra)
        try:
            state_dict_loader.load(state, checkpoint_id=path, no_dist=not self._topology.is_distributed)
        except CheckpointException as error:
            raise CheckpointError(f"checkpoint {path} does not fit the model: {cause_of(error)}") from error
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
