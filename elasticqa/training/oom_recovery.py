"""Whether a micro-batch fits into the memory: found out so that all ranks learn of it, and none waits for another."""

from collections.abc import Callable
from typing import TypeVar

import torch

from elasticqa.data.sampler import MicroBatchShape
from elasticqa.distributed.topology import Topology
from elasticqa.errors import DoesNotFitError, NoMemoryHereError

T = TypeVar("T")


def lacks_memory(error: BaseException | None) -> bool:
    """Whether memory ran out: by the error itself, by the one that it followed, or by what the driver said.

    To unwind a capture that ran out of memory may fail as well, and to make its graph takes memory of the driver.
    """
    while error is not None:
        if isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


class MemoryGuard:
    """Tries what may not fit, on all ranks alike.

    A rank that runs out of memory in the middle of an exchange leaves the others waiting in it. So a micro-batch that
    needs more than any before it is computed without exchange first; all ranks know which one that is.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._known = MicroBatchShape(0, 0, 0)

    def knows(self, shape: MicroBatchShape) -> bool:
        """Whether as much has fitted before."""
        return self._known.covers(shape)

    def attempt(self, work: Callable[[], T], shape: MicroBatchShape) -> T:
        """Return what the work gives; every rank must call this.

        Args:
            work: in which ranks exchange nothing.
            shape: of its largest micro-batch on any rank.

        Raises:
            DoesNotFitError: on every rank, when one has run out of memory.
        """
        results: list[T] = []
        try:
            results.append(work())
        except RuntimeError as error:
            if not lacks_memory(error):
                raise
            # Freed below: as long as the error lives, so do the tensors of its frames.
            is_short = True
        else:
            is_short = False
        if self._is_any(is_short):
            results.clear()
            if self._topology.device.type == "cuda":
                torch.cuda.empty_cache()
            raise self._error(shape)
        self._known = self._known.union(shape)
        return results[0]

    def attempt_exchanging(self, work: Callable[[], T], shape: MicroBatchShape) -> T:
        """Return what the work gives, in which ranks wait for one another.

        Args:
            work: that cannot be tried without exchange, since weights are sharded, or need not, since it has fitted.
            shape: of its largest micro-batch on any rank.

        Raises:
            NoMemoryHereError: on a rank that has run out of memory, and only there.
        """
        try:
            return work()
        except RuntimeError as error:
            if not lacks_memory(error):
                raise
            raise NoMemoryHereError(self._error(shape), shape.micro_batch_size) from error

    def _error(self, shape: MicroBatchShape) -> DoesNotFitError:
        return DoesNotFitError(shape.micro_batch_size, shape.num_tokens, self._topology.device)

    def _is_any(self, is_short: bool) -> bool:
        """Whether it is so on any rank; ranks wait for one another here."""
        if not self._topology.is_distributed:
            return is_short
        count = torch.full((), float(is_short), device=self._topology.device)
        self._topology.sum_in_place(count)
        return bool(count > 0)
