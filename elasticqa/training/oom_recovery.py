"""Recovery from running out of memory: all ranks learn that a micro-batch does not fit, and none is left waiting."""

from collections.abc import Callable
from typing import TypeVar

import torch

from elasticqa.data.sampler import MicroBatchShape
from elasticqa.distributed.topology import Topology
from elasticqa.distributed.torch_internals import is_out_of_memory
from elasticqa.errors import LocalOutOfMemoryError, MicroBatchTooLargeError

T = TypeVar("T")


def lacks_memory(error: BaseException | None) -> bool:
    """Whether an error, or one that led to it, is that memory ran out.

    Unwinding a capture that ran out of memory may fail as well. The CUDA driver and Triton raise plain RuntimeErrors,
    so for these only the message tells.
    """
    while error is not None:
        if is_out_of_memory(error):
            return True
        error = error.__cause__ or error.__context__
    return False


class MemoryGuard:
    """Runs work that may not fit into memory, on all ranks alike.

    A rank that runs out of memory during a collective leaves the others waiting in it. So a micro-batch that is larger
    than any before runs without collectives first; every rank knows which micro-batch that is.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._known = MicroBatchShape(0, 0, 0)

    def knows(self, shape: MicroBatchShape) -> bool:
        """Whether a micro-batch at least as large has fitted before."""
        return self._known.covers(shape)

    def run(self, work: Callable[[], T], shape: MicroBatchShape) -> T:
        """Return the result of work without collectives; every rank must call this.

        Args:
            work: to run.
            shape: of its largest micro-batch on any rank.

        Raises:
            MicroBatchTooLargeError: on every rank, when one runs out of memory.
        """
        results: list[T] = []
        try:
            results.append(work())
        except RuntimeError as error:
            if not lacks_memory(error):
                raise
            # Leave the block first: the error keeps the tensors of its frames alive.
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

    def run_reducing(self, work: Callable[[], T], shape: MicroBatchShape) -> T:
        """Return the result of work with collectives.

        Args:
            work: that has fitted before, or cannot run without collectives because weights are sharded.
            shape: of its largest micro-batch on any rank.

        Raises:
            LocalOutOfMemoryError: on a rank that runs out of memory, and only there.
        """
        try:
            return work()
        except RuntimeError as error:
            if not lacks_memory(error):
                raise
            raise LocalOutOfMemoryError(self._error(shape), shape.micro_batch_size) from error

    def _error(self, shape: MicroBatchShape) -> MicroBatchTooLargeError:
        return MicroBatchTooLargeError(shape.micro_batch_size, shape.num_tokens, self._topology.device)

    def _is_any(self, is_short: bool) -> bool:
        """Whether it is true on any rank; a collective."""
        if not self._topology.is_distributed:
            return is_short
        count = torch.full((), float(is_short), device=self._topology.device)
        self._topology.all_reduce_sum(count)
        return bool(count > 0)
