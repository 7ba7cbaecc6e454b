"""Checkpoints that are whole or absent, and load at any world size under any strategy.

A directory without a manifest, or one that does not match it, is not a checkpoint. docs/architecture.md explains a
save step by step.
"""

import logging
import time
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint import state_dict_loader
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.stateful import Stateful

from elasticqa.checkpoint.async_writer import AsyncWriter, PendingSave, Record, cause_of
from elasticqa.checkpoint.manifest import (
    Manifest,
    amend_manifest,
    checkpoint_directories,
    directory_name,
    read_manifest,
)
from elasticqa.checkpoint.retention import note_best, put_back_replaced, set_aside
from elasticqa.checkpoint.staging import Staging
from elasticqa.distributed.topology import Topology
from elasticqa.errors import CheckpointError, JournalError

logger = logging.getLogger(__name__)

PROGRESS = "progress"
"""Name of the part of an app_state that goes into the manifest: plain values, readable without loading tensors."""
_WRITE_TIMEOUT = timedelta(hours=1)
"""Longer than the slowest rank needs to write its share; the health check detects lost ranks much earlier."""


class Checkpointer:
    """Saves, finds, restores and prunes the checkpoints of one run; at most one save is pending."""

    def __init__(
        self,
        directory: Path,
        topology: Topology,
        app_state: Mapping[str, Stateful],
        *,
        keep: int,
        config: Mapping[str, Any] | None = None,
        record: Record | None = None,
    ) -> None:
        """Open the checkpoints of a run; every rank must call this.

        `PROGRESS` of the app_state and the config go into the manifest. ``record`` is flushed to disk before each
        commit, since a resumed run does not write its lines again. On rank 0 it gets a `checkpoint` line after each
        commit.
        """
        self._directory = directory
        self._topology = topology
        self._progress = app_state.get(PROGRESS)
        self._app_state = {name: part for name, part in app_state.items() if name != PROGRESS}
        self._config = dict(config or {})
        self._staging = Staging(topology.device)
        # The writer threads need their own process group: the main threads use theirs at the same time.
        self._writer = AsyncWriter(directory, topology.with_own_group(_WRITE_TIMEOUT), keep, record)
        self._executor = ThreadPoolExecutor(1, "checkpoint")
        self._pending: PendingSave | None = None
        self.skipped: list[str] = []
        """Warnings of ``newest_whole`` about damaged checkpoints, on rank 0."""
        # Silence a warning of DCP, which saves in a single process as intended.
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")

    def prepare(self) -> None:
        """Allocate host memory and look up names now, so that the first save is as fast as later ones.

        Call it when the optimizer has its state.
        """
        self.finish()
        self._staging.copy(self._state())

    def start(self, step: int, reason: str) -> None:
        """Start to save the current state, after the pending save has ended; every rank must call this.

        Raises:
            CheckpointError: on every rank, if one could not write its part of the pending save.
        """
        self.finish()
        began = time.monotonic()
        progress = {} if self._progress is None else self._progress.state_dict()
        manifest = Manifest(step, progress, self._config, reason=reason)
        state = self._staging.copy(self._state())
        self._pending = PendingSave(manifest, began, time.monotonic())
        self._pending.outcome = self._executor.submit(self._writer.write, self._pending, state)

    @property
    def has_failed(self) -> bool:
        """Whether this rank knows that the pending save has failed; other ranks may learn it a little later."""
        outcome = None if self._pending is None else self._pending.outcome
        return outcome is not None and outcome.done() and outcome.result() is not None

    def finish(self) -> None:
        """Return once no save is pending; every rank must call this.

        Raises:
            CheckpointError: on every rank, if one could not write its part; nothing of that save remains. It is a
                `RunRemovedError` if the run directory was removed.
        """
        pending, self._pending = self._pending, None
        if pending is None:
            return
        pending.waiting_since = time.monotonic()
        problem = pending.outcome.result()
        if problem is not None:
            raise problem

    def close(self) -> None:
        """Wait for the pending save without raising its error, and accept no more."""
        if self._pending is not None:
            wait([self._pending.outcome])
        self._executor.shutdown()

    def keep_best(self, step: int, f1: float) -> bool:
        """Keep a committed checkpoint until another has a higher F1 (percent); ranks other than 0 return False."""
        return self._topology.is_main and note_best(self._directory, step, f1)

    def amend(self, step: int, progress: Mapping[str, Any]) -> None:
        """Add the results of an evaluation to the progress of a committed checkpoint, on rank 0.

        If it cannot be written, a warning says so, and a run resumed from there evaluates again.
        """
        path = self._directory / directory_name(step)
        if not self._topology.is_main or not path.is_dir():
            return
        try:
            self._writer.flush()
            amend_manifest(path, progress)
        except (CheckpointError, JournalError, OSError) as error:
            logger.warning("the evaluation cannot be added to checkpoint %s: %s", path, error)

    def newest_whole(self) -> tuple[Path, Manifest] | None:
        """Return the newest checkpoint that matches its manifest; every rank must call this.

        Damaged ones are skipped with a warning that names them, kept in ``skipped`` on rank 0.
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
        """Return a checkpoint that was verified before, with its manifest; every rank must call this.

        Raises:
            CheckpointError: on every rank, if it cannot be read any more.
        """
        return path, self._topology.on_main(lambda: read_manifest(path, verify=False))

    def set_newer_aside(self, step: int) -> list[str]:
        """Move checkpoints of later steps to ``set-aside/`` and return their names; every rank must call this."""
        return self._topology.broadcast(set_aside(self._directory, step) if self._topology.is_main else [])

    def restore(self, path: Path, manifest: Manifest) -> None:
        """Load a checkpoint into every part of the app_state; every rank must call this.

        Raises:
            CheckpointError: it is of another model.
        """
        state = self._state()
        try:
            state_dict_loader.load(state, checkpoint_id=path, no_dist=not self._topology.is_distributed)
        except CheckpointException as error:
            raise CheckpointError(f"checkpoint {path} does not fit the model: {cause_of(error)}") from error
        for name, part in self._app_state.items():
            part.load_state_dict(state[name])
        if self._progress is not None:
            self._progress.load_state_dict(manifest.progress)

    def _state(self) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in self._app_state.items()}
