"""One rank of one variant: warms up, then takes the steps that `interleaved` requests. Only `interleaved` starts it."""

import gc
import importlib
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import torch

from benchmarks.support.setup import synchronize
from benchmarks.training.interleaved import Case, Report, StepsRequest

RUNNERS = {
    "elasticqa": "benchmarks.training.elasticqa_loop",
    "hf": "benchmarks.training.hf_trainer",
    "lightning": "benchmarks.training.lightning_trainer",
}
"""First word of a variant -> module whose `run(case, worker)` takes its steps."""


class Worker:
    """This rank's end of the connection; iterating over it yields once per requested step."""

    def __init__(self, connection: "Connection[Any, Any]", warm_up_steps: int) -> None:
        self._connection = connection
        self._warm_up_steps = warm_up_steps
        self._steps = self._requested_steps()

    def __iter__(self) -> Iterator[None]:
        return self._steps

    def wants_step(self) -> bool:
        """Return whether to take another step; trainers with their own loop call it before each step."""
        return next(self._steps, _END) is not _END

    def _requested_steps(self) -> Iterator[None]:
        for _ in range(self._warm_up_steps):
            yield
        synchronize()
        _free_memory()
        self._connection.send(None)
        while (order := self._receive()) is not None:
            for _ in range(order.settle_steps):
                yield
            synchronize()
            began = time.perf_counter()
            for _ in range(order.num_steps):
                yield
            synchronize()
            self._connection.send(Report(time.perf_counter() - began, *_peaks()))
            _free_memory()

    def _receive(self) -> StepsRequest | None:
        try:
            order: StepsRequest | None = self._connection.recv()
        except EOFError:
            return None
        return order


_END = object()


def _free_memory() -> None:
    """Free cached memory, because all variants share the GPU."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _peaks() -> tuple[int | None, int | None]:
    """Return the peaks of allocated and reserved memory of the process."""
    if not torch.cuda.is_available():
        return None, None
    return torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()


def main() -> None:
    """Receive a case and run it."""
    connection: Connection[Any, Any] = Connection(int(sys.argv[1]))
    case: Case = connection.recv()
    runner = importlib.import_module(RUNNERS[case.variant.partition("_")[0]])
    runner.run(case, Worker(connection, case.warm_up_steps))


if __name__ == "__main__":
    main()
