"""Out-of-memory recovery: if a micro-batch does not fit on one rank, all ranks raise the same error."""

from collections.abc import Callable
from typing import TypeVar

import torch

from elasticqa.data.sampler import MicroBatchShape
from elasticqa.distributed.topology import Topology
from elasticqa.distributed.torch_internals import is_out_of_memory
from elasticqa.errors import LocalOutOfMemoryError, MicroBatchTooLargeError

T = TypeVar("T")


def lacks_memory(error: BaseException | None) -> bool:
    """Whether an error, or one in its chain of causes, is an out-of-memory error.

    The chain matters because ending a CUDA graph capture that ran out of memory may raise another error.
    """
    while error is not None:
        if is_out_of_memory(error):
            return True
        error = error.__cause__ or error.__context__
    return False


class MemoryGuard:
    """Runs work that may run out of memory, and makes all ranks agree on the result.

    A rank that runs out of memory during a collective leaves the others waiting in it. So the first micro-batch of a
    new largest size runs without collectives. `StepBatch.largest` is equal on all ranks, so all do this in the same
    step.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._known = MicroBatchShape(0, 0, 0)

    def knows(self, shape: MicroBatchShape) -> bool:
        """Whether a micro-batch at least as large has fitted before."""
        return self._known.covers(shape)

    def run(self, work: Callable[[], T], shape: MicroBatchShape) -> T:
        """Return the result of work without collectives; every rank must call this.

        ``shape`` is that of its largest micro-batch on any rank.

        Raises:
            MicroBatchTooLargeError: on every rank, when one runs out of memory.
        """
        results: list[T] = []
        is_short = False
        try:
            results.append(work())
        except RuntimeError as error:
            if not lacks_memory(error):
                raise
            # Raise only after the except block: the error keeps the tensors of its frames alive.
            is_short = True
        if self._is_any(is_short):
            results.clear()
            if self._topology.device.type == "cuda":
                torch.cuda.empty_cache()
            raise self._error(shape)
        self._known = self._known.union(shape)
        return results[0]

    def run_reducing(self, work: Callable[[], T], shape: MicroBatchShape) -> T:
        """Return the result of work with collectives: the shape has fitted before, or weights are sharded.

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
        """Return whether ``is_short`` is true on any rank; a collective."""
        if not self._topology.is_distributed:
            return is_short
        count = torch.full((), float(is_short), device=self._topology.device)
        self._topology.all_reduce_sum(count)
        return bool(count > 0)
