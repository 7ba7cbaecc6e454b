"""Copy a training state to host memory, so that training continues while the copy is written."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from elasticqa.distributed.shards import local_part
from elasticqa.distributed.torch_internals import set_shard


class Staging:
    """Host memory for one training state, pinned where the state is on a GPU, and reused by every copy."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._buffers: dict[tuple[Any, ...], Tensor] = {}

    @torch.no_grad()
    def copy(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return a copy of nested dicts and lists of tensors and plain values; the next call overwrites it.

        The copies run on the current stream, so they see all work queued before. They are done when this returns.
        """
        staged: dict[str, Any] = self._copied(state, ())
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
        return staged

    def _copied(self, value: Any, place: tuple[Any, ...]) -> Any:
        if isinstance(value, Tensor):
            if place not in self._buffers:
                self._buffers[place] = _host_buffer(value)
            local_part(self._buffers[place]).copy_(local_part(value), non_blocking=True)
            return self._buffers[place]
        if isinstance(value, Mapping):
            return {name: self._copied(item, (*place, name)) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self._copied(item, (*place, number)) for number, item in enumerate(value))
        return value


def _host_buffer(tensor: Tensor) -> Tensor:
    """Return host memory of the tensor's shape, pinned if the tensor is on a GPU; for a DTensor, a DTensor."""
    local = local_part(tensor)
    host = torch.empty_like(local, device="cpu", pin_memory=local.device.type == "cuda")
    if not isinstance(tensor, DTensor):
        return host
    buffer = torch.empty_like(tensor, device="cpu")
    assert isinstance(buffer, DTensor)
    # empty_like allocates memory that is not pinned, so replace it.
    set_shard(buffer, host)
    return buffer
