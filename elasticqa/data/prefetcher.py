"""Batches made ahead of time: while the device computes a step, a thread packs the next ones."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

import torch

from elasticqa.data.sampler import StepPlan, StepPlanner

T = TypeVar("T")

DEPTH = 2
"""Steps made ahead: packing takes a tenth of a step, so that one would do if the host were never interrupted."""


class Ahead(Generic[T]):
    """Gives each step its input, made in time if it follows somebody's plans, else when it is asked for.

    What is made ahead is only ever used for the very plan it was made from, so that a run that stops, goes on from a
    checkpoint or changes its micro-batches feeds what is due.
    """

    def __init__(self, make: Callable[[StepPlan], T]) -> None:
        """Begin without a thread; ``make`` must not need the thread it runs in."""
        self._make = make
        self._planner: StepPlanner | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._coming: dict[int, Future[tuple[StepPlan, T]]] = {}

    def follow(self, planner: StepPlanner, device: torch.device) -> None:
        """Make inputs for the planner's steps ahead of time, with the GPU that they are for as the thread's own."""
        self._planner = planner
        self._thread = ThreadPoolExecutor(1, "ahead", initializer=torch.cuda.set_device, initargs=(device,))

    def take(self, plan: StepPlan) -> T:
        """Return the input of a step; an error in making it is raised here."""
        future = self._coming.pop(plan.step, None)
        made = None if future is None else future.result()
        self._look_ahead(plan.step + 1)
        if made is not None and made[0].is_same(plan):
            return made[1]
        return self._make(plan)

    def close(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
        self._thread = None
        self._coming.clear()

    def _look_ahead(self, first: int) -> None:
        if self._thread is None or self._planner is None:
            return
        steps = range(first, min(first + DEPTH, self._planner.num_steps))
        self._coming = {step: self._coming.get(step) or self._thread.submit(self._made, step) for step in steps}

    def _made(self, step: int) -> tuple[StepPlan, T]:
        assert self._planner is not None
        plan = self._planner.step_plan(step)
        return plan, self._make(plan)
