"""Asynchronous copies of results from the device to the host, read some steps later so that the host does not wait."""

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class HostCopies(Generic[T]):
    """A queue of asynchronous copies of tensors to the host, each with its item."""

    def __init__(self) -> None:
        self._pending: deque[tuple[T, Tensor, torch.cuda.Event | None]] = deque()

    def push(self, item: T, values: Tensor) -> None:
        """Start the copy of values to the host; values on a CPU are taken as they are."""
        if values.device.type == "cpu":
            self._pending.append((item, values, None))
            return
        on_host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        on_host.copy_(values, non_blocking=True)
        is_copied = torch.cuda.Event()
        is_copied.record()
        self._pending.append((item, on_host, is_copied))

    def read(self, lag: int) -> Iterator[tuple[T, Tensor]]:
        """Yield all entries but the newest ``lag``, the oldest first, each as soon as its copy is done."""
        while len(self._pending) > lag:
            item, on_host, is_copied = self._pending.popleft()
            if is_copied is not None:
                is_copied.synchronize()
            yield item, on_host
