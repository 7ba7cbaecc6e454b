"""Write a checkpoint in background threads: each rank writes its share while its main thread trains."""

import shutil
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from torch.distributed.checkpoint import state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future as TorchFuture

from db.journal_schema import Kind
from elasticqa.checkpoint.manifest import Manifest, describe, directory_name, write_manifest
from elasticqa.checkpoint.retention import PARTIAL, prune, put_in_place
from elasticqa.distributed.topology import Topology
from elasticqa.errors import CheckpointError, JournalError, RunRemovedError, one_line


class Record(Protocol):
    """The part of a rank's `Recorder` that saves use."""

    def flush(self) -> None:
        """Return once everything recorded so far is on the disk."""

    def write(self, kind: Kind, fields: dict[str, Any]) -> None:
        """Add a line of the kind."""


@dataclass
class PendingSave:
    """A save that has started and may not be done; times are of the monotonic clock."""

    manifest: Manifest
    began: float
    staged: float
    waiting_since: float | None = None
    outcome: Future[CheckpointError | None] = field(default_factory=Future)

    def journal_line(self, path: Path) -> dict[str, Any]:
        """Return the fields of the journal's `checkpoint` line, once the checkpoint is whole at ``path``."""
        now = time.monotonic()
        waited_s = 0.0 if self.waiting_since is None else now - self.waiting_since
        return {
            "step": self.manifest.step,
            "path": f"{path.parent.name}/{path.name}",
            "bytes": self.manifest.num_bytes,
            "save_time_s": now - self.began,
            "blocked_time_s": self.staged - self.began + waited_s,
            "reason": self.manifest.reason,
        }


@dataclass(frozen=True)
class AsyncWriter:
    """Writes checkpoints of one run."""

    directory: Path
    topology: Topology
    """Has its own process group for the writer threads."""
    keep: int
    """Number of newest checkpoints to keep, beside the best."""
    record: Record | None

    def write(self, save: PendingSave, state: dict[str, Any]) -> CheckpointError | None:
        """Write and commit a checkpoint, or return on every rank why it failed; every rank must call this.

        Journals and feature logs are flushed to disk before the commit: a resumed run does not write these lines again.
        """
        final = self.directory / directory_name(save.manifest.step)
        temporary = self.directory / f".{final.name}{PARTIAL}"
        main = self.topology.is_main
        problem = (
            self._together(lambda: _make_empty(temporary) if main else None)
            or self._together(self.flush)
            or self._together(lambda: self._write_share(state, temporary))
            or self._together(lambda: self._describe(save.manifest, temporary))
            or self._together(lambda: _commit(temporary, final, save.manifest) if main else None)
        )
        if problem is None:
            if main:
                if self.record is not None:
                    self.record.write("checkpoint", save.journal_line(final))
                prune(self.directory, save.manifest.step, self.keep)
            return None
        if main:
            shutil.rmtree(temporary, ignore_errors=True)
        if self.topology.first_value(None if self.directory.parent.exists() else problem) is not None:
            return RunRemovedError(
                f"run directory {self.directory.parent} is gone: it was removed, or its file system unmounted, during "
                "training, and its checkpoints are lost with it; start again"
            )
        return CheckpointError(
            f"checkpoint {temporary} could not be written: {problem}; the last whole one is kept; free some space"
        )

    def flush(self) -> None:
        """Write this rank's journal and feature log to disk."""
        if self.record is not None:
            self.record.flush()

    def _together(self, work: Callable[[], None]) -> str | None:
        """Run one part of a save on every rank; return on every rank the error of the lowest that failed, or None."""
        problem = None
        try:
            work()
        except (OSError, JournalError) as error:
            problem = str(error)
        except CheckpointException as error:
            problem = cause_of(error)
        return self.topology.first_value(problem)

    def _write_share(self, state: dict[str, Any], path: Path) -> None:
        # Turn off the writer's copies to the host, which would create CUDA streams: the state is in host memory
        # already.
        writer = _Writer(path, per_thread_copy_ahead=0)
        is_alone = not self.topology.is_distributed
        state_dict_saver.save(state, storage_writer=writer, process_group=self.topology.group, no_dist=is_alone)

    def _describe(self, manifest: Manifest, path: Path) -> None:
        """Collect on rank 0 the size and digest of the files that each rank wrote."""
        own = describe(path, f"__{self.topology.rank}_*")
        for files in self.topology.gather(own):
            manifest.files.update(files)


def _make_empty(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)
    # Create one parent only: if the run directory was deleted, it must not reappear.
    path.parent.mkdir(exist_ok=True)
    path.mkdir()


def _commit(temporary: Path, final: Path, manifest: Manifest) -> None:
    write_manifest(temporary, manifest)
    put_in_place(temporary, final)


class _Writer(FileSystemWriter):
    """Raises the OSError that caused torch's error: on a full disk, torch's error only names an unexpected position.

    DCP sends the error, but not its cause, to the other ranks, so unwrap it here.
    """

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> TorchFuture[list[WriteResult]]:
        """Write this rank's share.

        Raises:
            OSError: it cannot be written.
        """
        try:
            return super().write_data(plan, planner)
        except RuntimeError as error:
            cause: BaseException | None = error
            while cause is not None and not isinstance(cause, OSError):
                cause = cause.__cause__ or cause.__context__
            raise cause or error from error


def cause_of(error: CheckpointException) -> str:
    """Return the error of the lowest rank that failed, on one line."""
    first, _ = error.failures[min(error.failures)]
    return one_line(first)
