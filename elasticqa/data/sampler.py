"""From a step's number to the features that a rank feeds: pure functions of (seed, epoch, step, world size).

The global batch is the step. Which features it holds does not depend on the world size; who computes which share
does. Every rank works the plan out for itself, so nothing is sent between ranks.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from elasticqa.config.batch_plan import BatchPlan
from elasticqa.data.micro_batch import Indices


@lru_cache(maxsize=2)
def epoch_order(seed: int, epoch: int, num_features: int) -> Indices:
    """Return the order in which an epoch visits the features, a permutation of ``range(num_features)``, read-only.

    Philox is counter-based and its stream is fixed by NumPy's compatibility promise for bit generators. The last two
    are kept: at the end of an epoch, steps are planned ahead into the next.
    """
    bits = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch])))
    order = np.argsort(bits.random(num_features), kind="stable")
    order.flags.writeable = False
    return order


def shares(lengths: Sequence[int] | NDArray[np.integer], world_size: int) -> list[list[int]]:
    """Return for each rank the positions in the batch that it computes, balanced by tokens.

    Longest first, each to the rank with the fewest tokens so far (Graham 1969, LPT: at most 4/3 of the optimum).
    Within a share positions go from long to short. Shares need not be equal in count and may be empty.

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
class Extent:
    """What the memory for a micro-batch follows from.

    Attributes:
        num_features: B.
        num_tokens: T.
        num_places: tokens once all features are padded to the longest.
    """

    num_features: int
    num_tokens: int
    num_places: int

    def union(self, other: "Extent") -> "Extent":
        """Return the smallest extent that covers both."""
        return Extent(*map(max, astuple(self), astuple(other)))

    def covers(self, other: "Extent") -> bool:
        """Whether the other needs no more memory."""
        return self.union(other) == self


@dataclass(frozen=True)
class StepPlan:
    """What one rank feeds in one step.

    ``micro_batches`` holds feature indices. All ranks have equally many micro-batches (FSDP gathers parameters
    in each); one that has nothing to compute in a micro-batch has an empty array there.
    """

    step: int
    epoch: int
    micro_batches: list[Indices]
    num_features: int
    num_tokens: int
    max_share_tokens: int
    """Tokens of the largest share: over the mean it is the imbalance that all ranks wait for."""
    largest: Extent
    """Covers every micro-batch of every rank, so that all ranks judge alike whether the step will fit."""

    def is_same(self, other: "StepPlan") -> bool:
        """Whether the other feeds the same features in the same micro-batches."""
        return (
            self.step == other.step
            and len(self.micro_batches) == len(other.micro_batches)
            and all(map(np.array_equal, self.micro_batches, other.micro_batches))
        )


class StepPlanner:
    """Plans of all steps for one rank; other threads may ask it too."""

    def __init__(
        self,
        plan: BatchPlan,
        lengths: NDArray[np.integer],
        *,
        seed: int,
        rank: int,
        world_size: int,
        micro_batch_size: int,
    ) -> None:
        self._plan = plan
        self._lengths = lengths
        self._seed = seed
        self._rank = rank
        self._world_size = world_size
        self._micro_batch_size = micro_batch_size

    @property
    def num_steps(self) -> int:
        """Steps of the run."""
        return self._plan.num_steps

    def global_batch(self, step: int) -> tuple[int, Indices]:
        """Return the epoch of the step numbered from 0 and the features of its global batch."""
        epoch, within = self._plan.position(step)
        order = epoch_order(self._seed, epoch, self._plan.num_features)
        size = self._plan.global_batch_size
        return epoch, order[within * size : (within + 1) * size]

    def step_plan(self, step: int) -> StepPlan:
        """Return what this rank feeds in the step numbered from 0."""
        epoch, batch = self.global_batch(step)
        lengths = self._lengths[batch]
        parts = shares(lengths, self._world_size)
        num_micro = max(-(-len(part) // self._micro_batch_size) for part in parts)
        mine = batch[np.asarray(parts[self._rank], dtype=np.int64)]
        return StepPlan(
            step=step,
            epoch=epoch,
            micro_batches=list(np.array_split(mine, num_micro)),
            num_features=len(batch),
            num_tokens=int(lengths.sum()),
            max_share_tokens=max(int(lengths[part].sum()) for part in parts),
            largest=_largest(lengths, parts, num_micro),
        )

    def halve(self, plan: StepPlan) -> int:
        """Compute from now on in micro-batches half as large as the plan's largest, and return how large they may be.

        Every rank must call this; the features of a step stay what they are.
        """
        self._micro_batch_size = -(-plan.largest.num_features // 2)
        return self._micro_batch_size


def _largest(lengths: NDArray[np.integer], parts: list[list[int]], num_micro: int) -> Extent:
    """Return what covers all micro-batches: of each share the first has the most features, and the longest."""
    extent = Extent(0, 0, 0)
    for part in parts:
        first = lengths[part[: -(-len(part) // num_micro)]]
        longest = int(first[0]) if len(first) else 0
        extent = extent.union(Extent(len(first), int(first.sum()), len(first) * longest))
    return extent
