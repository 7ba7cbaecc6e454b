"""Records of micro-batches that did not fit into memory, which the next attempt of the run reads.

If a rank runs out of memory while weights are gathered, the other ranks wait for it and the attempt cannot continue.
The next attempt uses smaller micro-batches.
"""

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

FOLDER = "shortages"


@dataclass(frozen=True)
class OutOfMemoryRecord:
    """A micro-batch that did not fit into the memory of a rank."""

    attempt: int
    world_size: int
    """World size of the attempt; with fewer ranks, each rank needs at least as much memory."""
    num_features: int
    what: str
    """Message: what did not fit, and into which memory."""

    @property
    def next_micro_batch_size(self) -> int:
        """Features to try next; 0 if a single one did not fit."""
        return 0 if self.num_features == 1 else -(-self.num_features // 2)


def write_oom_record(directory: Path, rank: int, record: OutOfMemoryRecord) -> None:
    """Write the record of a rank to the run directory; a failed write is ignored, because the attempt ends anyway."""
    path = directory / FOLDER / f"attempt-{record.attempt:04d}-rank-{rank:05d}.json"
    unfinished = path.with_suffix(".partial")
    with suppress(OSError):
        path.parent.mkdir(exist_ok=True)
        with unfinished.open("w", encoding="utf-8") as file:
            json.dump(asdict(record), file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)


def smallest_oom_record(directory: Path, world_size: int) -> OutOfMemoryRecord | None:
    """Return the record of the smallest micro-batch that did not fit with ``world_size`` ranks or more, or None."""
    found = [_read(path) for path in (directory / FOLDER).glob("attempt-*-rank-*.json")]
    relevant = [record for record in found if record is not None and record.world_size >= world_size]
    return min(relevant, key=lambda record: (record.num_features, -record.attempt), default=None)


def _read(path: Path) -> OutOfMemoryRecord | None:
    try:
        record = OutOfMemoryRecord(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    numbers = (record.attempt, record.world_size, record.num_features)
    return record if all(isinstance(number, int) and number >= 1 for number in numbers) else None
