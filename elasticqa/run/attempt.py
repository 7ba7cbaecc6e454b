"""One attempt of a run: the lifetime of one process group, and the last line of its journal."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticqa.config.train_config import TrainConfig
from elasticqa.run.journal import FedLog, Journal
from elasticqa.run.oom_records import Shortage


@dataclass(frozen=True)
class Attempt:
    """An attempt as one rank sees it; ``journal`` is None but on the rank of its node that writes."""

    config: TrainConfig
    """Of the run: its global batch is that of the first attempt."""
    directory: Path
    number: int
    started_at: float
    """Unix seconds when this process began."""
    journal: Journal | None
    fed_log: FedLog
    checkpoint: Path | None = None
    """To go on from; None for the newest whole one."""
    shortage: Shortage | None = None
    """What an earlier attempt had no memory for."""

    @property
    def run_id(self) -> str:
        """The run's id, the name of its directory."""
        return self.directory.name

    @property
    def micro_batch_size(self) -> int:
        """At most so many features per rank and forward pass: as asked for, or fewer where they did not fit."""
        size = self.config.micro_batch_size
        return size if self.shortage is None else min(size, max(1, self.shortage.micro_batch_size))


def write_end(attempt: Attempt, status: str, reason: str, *, is_fatal: bool = False, **figures: Any) -> dict[str, Any]:
    """Write the attempt's last line (on the rank that has a journal) and return its fields.

    Args:
        attempt: that ends.
        status: ``finished``, ``failed`` or ``preempted``.
        reason: for a reader, on one line.
        is_fatal: the same start would fail the same way.
        figures: what the run came to.
    """
    fields = {
        "status": status,
        "reason": reason,
        "is_fatal": is_fatal,
        "wall_clock_s": time.time() - attempt.started_at,
        **figures,
    }
    if attempt.journal is not None:
        attempt.journal.write("end", fields)
        attempt.journal.flush()
    return fields
