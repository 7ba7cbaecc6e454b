"""What ranks of a sharded model had no memory for, kept in the run directory for the next attempt.

A rank that runs out of memory while weights are being gathered leaves the others waiting, so their attempt cannot go
on; the next one computes in smaller micro-batches.
"""

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

FOLDER = "shortages"


@dataclass(frozen=True)
class OutOfMemoryRecord:
    """A micro-batch that did not fit.

    Attributes:
        attempt: in which.
        world_size: of that attempt; with fewer ranks there is no more memory.
        num_features: of the micro-batch.
        what: did not fit where, for a reader.
    """

    attempt: int
    world_size: int
    num_features: int
    what: str

    @property
    def micro_batch_size(self) -> int:
        """Features that are tried next; 0 where a single one did not fit."""
        return 0 if self.num_features == 1 else -(-self.num_features // 2)


def keep(directory: Path, rank: int, shortage: OutOfMemoryRecord) -> None:
    """Keep what a rank had no memory for; nothing is raised where it cannot be written, since the attempt ends."""
    path = directory / FOLDER / f"attempt-{shortage.attempt:04d}-rank-{rank:05d}.json"
    unfinished = path.with_suffix(".partial")
    with suppress(OSError):
        path.parent.mkdir(exist_ok=True)
        with unfinished.open("w", encoding="utf-8") as file:
            json.dump(asdict(shortage), file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)


def smallest_oom_record(directory: Path, world_size: int) -> OutOfMemoryRecord | None:
    """Return the smallest micro-batch that did not fit into the memory of as many ranks, or more."""
    found = [_read(path) for path in (directory / FOLDER).glob("attempt-*-rank-*.json")]
    that_count = [each for each in found if each is not None and each.world_size >= world_size]
    return min(that_count, key=lambda each: (each.num_features, -each.attempt), default=None)


def _read(path: Path) -> OutOfMemoryRecord | None:
    try:
        shortage = OutOfMemoryRecord(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    numbers = (shortage.attempt, shortage.world_size, shortage.num_features)
    return shortage if all(isinstance(number, int) and number >= 1 for number in numbers) else None
