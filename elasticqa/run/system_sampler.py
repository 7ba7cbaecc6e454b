"""A thread that samples a node's utilization into its journal; the samples also show that the run is alive."""

import importlib
import importlib.util
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import torch

from elasticqa.run.journal import Journal

# torch queries NVML through pynvml, but does not require it and does not catch its errors.
_NVML: Any = importlib.import_module("pynvml") if importlib.util.find_spec("pynvml") else None
_UNKNOWN: tuple[type[Exception], ...] = (RuntimeError, ModuleNotFoundError, *([_NVML.NVMLError] if _NVML else []))


@contextmanager
def system_sampler(journal: Journal, node_rank: int, interval_s: float) -> Iterator[None]:
    """Write a `system` line at an interval while the block runs."""
    stopped = threading.Event()

    def write_samples() -> None:
        while not stopped.wait(interval_s):
            journal.write("system", sample(node_rank))

    psutil.cpu_percent()  # The first call of a process returns 0 and starts the measurement for the next call.
    thread = threading.Thread(target=write_samples, name="system sampler", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def sample(node_rank: int) -> dict[str, Any]:
    """Return the fields of a `system` line; a value that a device does not report is None."""
    return {
        "node_rank": node_rank,
        "cpu_percent": psutil.cpu_percent(),
        "memory_bytes": psutil.virtual_memory().used,
        "gpus": [_gpu(index) for index in range(torch.cuda.device_count())],
    }


def _gpu(index: int) -> dict[str, Any]:
    # All three use NVML: a query through CUDA would create a context of hundreds of MiB on every GPU of the node.
    power_mw = _known(torch.cuda.power_draw, index)
    return {
        "index": index,
        "utilization_percent": _known(torch.cuda.utilization, index),
        "memory_bytes": _known(torch.cuda.device_memory_used, index),
        "power_w": None if power_mw is None else power_mw / 1000,
    }


def _known(query: Callable[[int], int], index: int) -> int | None:
    """Return the result of a query, or None if the device does not support it."""
    try:
        return query(index)
    except _UNKNOWN:
        return None
