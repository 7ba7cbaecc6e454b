"""How the ranks write one checkpoint together, each in a thread, while their main threads go on with the steps."""

import shutil
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint import state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future as TorchFuture

from elasticqa.checkpoint.manifest import Manifest, describe, directory_name, write_manifest
from elasticqa.checkpoint.retention import PARTIAL, prune, put_in_place
from elasticqa.distributed.topology import Topology
from elasticqa.errors import CheckpointError, JournalError, RunGoneError


@dataclass(frozen=True)
class Committed:
    """A checkpoint that is whole now.

    Attributes:
        path: its directory.
        manifest: of it.
        save_time_s: from the request to the commit.
        blocked_time_s: for which training stood still for it.
    """

    path: Path
    manifest: Manifest
    save_time_s: float
    blocked_time_s: float


@dataclass
class Saving:
    """A save on its way; times are of the monotonic clock."""

    manifest: Manifest
    began: float
    staged: float
    waiting_since: float | None = None
    outcome: Future[CheckpointError | None] = field(default_factory=Future)

    def committed(self, path: Path) -> Committed:
        """Return the checkpoint with its times, now that it is whole."""
        now = time.monotonic()
        waited = 0.0 if self.waiting_since is None else now - self.waiting_since
        return Committed(path, self.manifest, now - self.began, self.staged - self.began + waited)


@dataclass(frozen=True)
class Writer:
    """Writes checkpoints of one run.

    Attributes:
        directory: of its checkpoints.
        topology: whose group nobody else uses.
        keep: the newest so many are kept, and the best.
        flush_record: makes durable what this rank has said of its steps.
    """

    directory: Path
    topology: Topology
    keep: int
    flush_record: Callable[[], None]

    def write(
        self, saving: Saving, state: dict[str, Any], on_commit: Callable[[Committed], None]
    ) -> CheckpointError | None:
        """Write and commit, and return on every rank what kept one from it; every rank must call this.

        Nothing is committed before the lines on its steps are durable: a run that goes on from it says them no more.
        """
        final = self.directory / directory_name(saving.manifest.step)
        temporary = self.directory / f".{final.name}{PARTIAL}"
        main = self.topology.is_main
        problem = (
            self._together(lambda: _make_empty(temporary) if main else None)
            or self._together(self.flush_record)
            or self._together(lambda: self._write_share(state, temporary))
            or self._together(lambda: self._describe(saving.manifest, temporary))
            or self._together(lambda: _commit(temporary, final, saving.manifest) if main else None)
        )
        if problem is None:
            if main:
                on_commit(saving.committed(final))
                prune(self.directory, saving.manifest.step, self.keep)
            return None
        if main:
            shutil.rmtree(temporary, ignore_errors=True)
        if self.topology.first(None if self.directory.parent.exists() else problem) is not None:
            return RunGoneError(
                f"run directory {self.directory.parent} is gone: it was removed or its file system is away while the "
                "run went on, and what it had learned is lost with it; start again"
            )
        return CheckpointError(
            f"checkpoint {temporary} could not be written: {problem}; the last whole one stays; free some space"
        )

    def _together(self, work: Callable[[], None]) -> str | None:
        """Do a part of a save, and return on every rank what the first one says that could not."""
        problem = None
        try:
            work()
        except (OSError, JournalError) as error:
            problem = str(error)
        except CheckpointException as error:
            problem = cause_of(error)
        return self.topology.first(problem)

    def _write_share(self, state: dict[str, Any], path: Path) -> None:
        # The copies are on the host already; a writer that copies ahead would make streams on the GPU.
        writer = _Writer(path, per_thread_copy_ahead=0)
        is_alone = not self.topology.is_distributed
        state_dict_saver.save(state, storage_writer=writer, process_group=self.topology.group, no_dist=is_alone)

    def _describe(self, manifest: Manifest, path: Path) -> None:
        """Bring together on rank 0 what each rank says of the files that it wrote."""
        own = describe(path, f"__{self.topology.rank}_*")
        for files in self.topology.gather(own):
            manifest.files.update(files)


def _make_empty(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)
    # Not with all its parents: a run that was deleted must not come back in part.
    path.parent.mkdir(exist_ok=True)
    path.mkdir()


def _commit(temporary: Path, final: Path, manifest: Manifest) -> None:
    write_manifest(temporary, manifest)
    put_in_place(temporary, final)


class _Writer(FileSystemWriter):
    """Says what the operating system said: on a full disk, torch's archive writer says that a position is unexpected.

    Here and not where the error is told, since what led to it does not reach the other ranks.
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
    """Return what the first rank that failed says, on one line."""
    first, _ = error.failures[min(error.failures)]
    lines = str(first).strip().splitlines()
    return f"{type(first).__name__}: {lines[0]}" if lines else type(first).__name__
