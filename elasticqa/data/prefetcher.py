"""Pack the batches of the next steps in a thread while the device computes the current one."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

import torch

from elasticqa.data.sampler import Sampler, StepBatch

T = TypeVar("T")

DEPTH = 2
"""Steps to prefetch; packing takes a tenth of a step, and the second one covers delays of the host."""


class Prefetcher(Generic[T]):
    """Returns the input of each step: prefetched once started, otherwise made on demand.

    A prefetched input is used only for the exact `StepBatch` that it was made from. After a resume or a change of the
    micro-batch size the input is made again.
    """

    def __init__(self, make: Callable[[StepBatch], T]) -> None:
        """Create a prefetcher without a thread; ``make`` may be called from any thread."""
        self._make = make
        self._sampler: Sampler | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._pending: dict[int, Future[tuple[StepBatch, T]]] = {}

    def start(self, sampler: Sampler, device: torch.device) -> None:
        """Start a thread that makes the inputs of the sampler's steps; ``device`` is its current CUDA device."""
        self._sampler = sampler
        self._thread = ThreadPoolExecutor(1, "prefetch", initializer=torch.cuda.set_device, initargs=(device,))

    def take(self, step_batch: StepBatch) -> T:
        """Return the input of a step and prefetch the next ones; re-raises an error of ``make``."""
        future = self._pending.pop(step_batch.step, None)
        prefetched = None if future is None else future.result()
        if self._thread is not None and self._sampler is not None:
            first, submit = step_batch.step + 1, self._thread.submit
            steps = range(first, min(first + DEPTH, self._sampler.plan.num_steps))
            self._pending = {
                step: self._pending.get(step) or submit(self._prefetch, self._sampler, step) for step in steps
            }
        if prefetched is not None and prefetched[0].is_same(step_batch):
            return prefetched[1]
        return self._make(step_batch)

    def close(self) -> None:
        """Stop the thread."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
        self._thread = None
        self._pending.clear()

    def _prefetch(self, sampler: Sampler, step: int) -> tuple[StepBatch, T]:
        step_batch = sampler.step_batch(step)
        return step_batch, self._make(step_batch)
