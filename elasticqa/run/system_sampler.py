"""How busy a node is, sampled by a thread into its journal; the samples are the attempt's heartbeat too."""

import importlib
import importlib.util
import threading
from collections.abc import Callable
from typing import Any

import psutil
import torch

from elasticqa.run.journal import Journal

# torch asks NVML through this package, has no dependency on it, and lets its errors through.
_NVML: Any = importlib.import_module("pynvml") if importlib.util.find_spec("pynvml") else None
_UNKNOWN: tuple[type[Exception], ...] = (RuntimeError, ModuleNotFoundError, *([_NVML.NVMLError] if _NVML else []))


class SystemSampler:
    """Writes a `system` line every few seconds until stopped."""

    def __init__(self, journal: Journal, node_rank: int, interval_s: float) -> None:
        self._journal = journal
        self._node_rank = node_rank
        self._interval_s = interval_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="system sampler", daemon=True)

    def start(self) -> None:
        """Begin to sample."""
        psutil.cpu_percent()  # The first call of a process returns 0 and sets the mark for the next.
        self._thread.start()

    def stop(self) -> None:
        """Stop, and return when the thread has ended."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_s):
            self._journal.write("system", sample(self._node_rank))


def sample(node_rank: int) -> dict[str, Any]:
    """Return the `system` line of now; what a device does not tell is None."""
    return {
        "node_rank": node_rank,
        "cpu_percent": psutil.cpu_percent(),
        "memory_bytes": psutil.virtual_memory().used,
        "gpus": [_gpu(index) for index in range(torch.cuda.device_count())],
    }


def _gpu(index: int) -> dict[str, Any]:
    # All three ask NVML: a query through CUDA would open a context, hundreds of MiB, on every GPU of the node.
    power_mw = _known(torch.cuda.power_draw, index)
    return {
        "index": index,
        "utilization_percent": _known(torch.cuda.utilization, index),
        "memory_bytes": _known(torch.cuda.device_memory_used, index),
        "power_w": None if power_mw is None else power_mw / 1000,
    }


def _known(query: Callable[[int], int], index: int) -> int | None:
    """Return the answer, or None: a device that does not tell must not end the training that asks."""
    try:
        return query(index)
    except _UNKNOWN:
        return None
