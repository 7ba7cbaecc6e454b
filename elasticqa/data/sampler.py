"""Choose the features of each rank and step, as pure functions of (seed, epoch, step, world size).

One step uses one global batch. Its features do not depend on the world size, only their split over ranks does. Every
rank computes the split itself, without communication.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, astuple, dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from elasticqa.config.batch_plan import BatchPlan
from elasticqa.data.micro_batch import Indices


@lru_cache(maxsize=2)
def epoch_order(seed: int, epoch: int, num_train_features: int) -> Indices:
    """Return the order of an epoch: a read-only permutation of the indices of all training features.

    NumPy's compatibility policy fixes the stream of Philox. The cache holds two epochs, since at the end of one the
    prefetcher already reads the next.
    """
    bits = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch])))
    order = np.argsort(bits.random(num_train_features), kind="stable")
    order.flags.writeable = False
    return order


def shares(lengths: Sequence[int] | NDArray[np.integer], world_size: int) -> list[list[int]]:
    """Return for each rank its positions in the global batch, balanced by tokens.

    The longest remaining feature is assigned to the rank with the fewest tokens so far (Graham 1969, LPT: at most 4/3
    of the optimum). Within a share, lengths descend. Shares may differ in count and may be empty.

    >>> shares([5, 1, 4, 4, 2], 2)
    [[0, 4, 1], [2, 3]]
    """
    result: list[list[int]] = [[] for _ in range(world_size)]
    tokens = [0] * world_size
    for position in np.argsort(-np.asarray(lengths), kind="stable").tolist():
        rank = min(range(world_size), key=lambda r: (tokens[r], r))
        result[rank].append(position)
        tokens[rank] += int(lengths[position])
    return result


@dataclass(frozen=True)
class MicroBatchShape:
    """Sizes that determine how much memory a micro-batch needs; padded tokens = features x longest feature."""

    micro_batch_size: int
    num_tokens: int
    num_padded_tokens: int

    def union(self, other: "MicroBatchShape") -> "MicroBatchShape":
        """Return the larger of both in each size."""
        return MicroBatchShape(*map(max, astuple(self), astuple(other)))

    def covers(self, other: "MicroBatchShape") -> bool:
        """Whether the other is at most as large in every size."""
        return self.union(other) == self


@dataclass(frozen=True)
class StepBatch:
    """The features that one rank feeds in one step; features and tokens are counted over the global batch."""

    step: int
    """Numbered from 0, as is the epoch."""
    epoch: int
    micro_batches: list[Indices]
    """Equally many on every rank, since FSDP gathers parameters for each; an array may be empty."""
    num_features: int
    num_tokens: int
    max_share_tokens: int
    largest: MicroBatchShape
    """The largest sizes of any micro-batch of any rank; equal on all ranks."""

    def is_same(self, other: "StepBatch") -> bool:
        """Whether the other feeds the same features in the same micro-batches."""
        return (
            self.step == other.step
            and len(self.micro_batches) == len(other.micro_batches)
            and all(map(np.array_equal, self.micro_batches, other.micro_batches))
        )


@dataclass
class Sampler:
    """Computes the batch of any step for one rank; thread-safe."""

    plan: BatchPlan
    lengths: NDArray[np.integer]
    _: KW_ONLY
    seed: int
    rank: int
    world_size: int
    micro_batch_size: int

    def global_batch(self, step: int) -> tuple[int, Indices]:
        """Return the epoch and the feature indices of a step's global batch; steps are numbered from 0."""
        epoch, within = self.plan.position(step)
        order = epoch_order(self.seed, epoch, self.plan.num_train_features)
        size = self.plan.global_batch_size
        return epoch, order[within * size : (within + 1) * size]

    def step_batch(self, step: int) -> StepBatch:
        """Return what this rank feeds in a step, numbered from 0."""
        epoch, batch = self.global_batch(step)
        lengths = self.lengths[batch]
        parts = shares(lengths, self.world_size)
        num_micro_batches = max(-(-len(part) // self.micro_batch_size) for part in parts)
        mine = batch[np.asarray(parts[self.rank], dtype=np.int64)]
        return StepBatch(
            step=step,
            epoch=epoch,
            micro_batches=list(np.array_split(mine, num_micro_batches)),
            num_features=len(batch),
            num_tokens=int(lengths.sum()),
            max_share_tokens=max(int(lengths[part].sum()) for part in parts),
            largest=_largest(lengths, parts, num_micro_batches),
        )

    def halve_micro_batches(self, step_batch: StepBatch) -> int:
        """Limit micro-batches to half the size of this step's largest, and return the new limit.

        Every rank must call this. The features of a step do not change.
        """
        self.micro_batch_size = -(-step_batch.largest.micro_batch_size // 2)
        return self.micro_batch_size


def _largest(lengths: NDArray[np.integer], parts: list[list[int]], num_micro_batches: int) -> MicroBatchShape:
    """Return the shape that covers all micro-batches: the first of a share has the most features, and the longest."""
    shape = MicroBatchShape(0, 0, 0)
    for part in parts:
        first = lengths[part[: -(-len(part) // num_micro_batches)]]
        longest = int(first[0]) if len(first) else 0
        shape = shape.union(MicroBatchShape(len(first), int(first.sum()), len(first) * longest))
    return shape
