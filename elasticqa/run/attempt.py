"""One attempt of a run: the lifetime of one process group, and the last line of its journal."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticqa.config.batch_plan import BatchPlan
from elasticqa.config.train_config import TrainConfig
from elasticqa.run.journal import FeatureLog, Journal
from elasticqa.run.oom_records import OutOfMemoryRecord


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An attempt on one rank; only one rank per node has a ``journal``, on the others it is None."""

    config: TrainConfig
    """Config of the run, with the global batch size of its first attempt."""
    plan: BatchPlan
    directory: Path
    number: int
    started_at: float
    """Unix seconds when this process began."""
    is_main: bool
    """This is rank 0."""
    journal: Journal | None
    feature_log: FeatureLog
    checkpoint: Path | None = None
    """The checkpoint to resume from; None for the newest whole one."""
    earlier_oom: OutOfMemoryRecord | None = None
    """The smallest micro-batch for which an earlier attempt had no memory."""

    @property
    def run_id(self) -> str:
        """The run's id, the name of its directory."""
        return self.directory.name

    @property
    def micro_batch_size(self) -> int:
        """Maximum features per rank and forward pass; fewer than configured if an earlier attempt lacked memory."""
        size = self.config.micro_batch_size
        return size if self.earlier_oom is None else min(size, max(1, self.earlier_oom.next_micro_batch_size))


def write_end(attempt: Attempt, status: str, reason: str, *, is_fatal: bool = False, **totals: Any) -> dict[str, Any]:
    """Write the attempt's last line, into the journal of node 0 only, and return its fields.

    The status is ``finished``, ``failed`` or ``preempted``; after a fatal end, a restart would fail in the same way.
    """
    fields = {
        "status": status,
        "reason": reason,
        "is_fatal": is_fatal,
        "wall_clock_s": time.time() - attempt.started_at,
        **totals,
    }
    if attempt.journal is not None:
        if attempt.is_main:
            attempt.journal.write("end", fields)
        attempt.journal.flush()
    return fields
