"""Copies of a training state in host memory, so that the next step may change the state while they are written."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from elasticqa.distributed.shards import local_part


def state_of(model: nn.Module, optimizer: Optimizer, extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a checkpoint holds, by names that do not depend on how the model is wrapped; not copied."""
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state, "extra": dict(extra)}


class Staging:
    """Host memory for the state of one model, pinned where the state is on a GPU, and used again for each copy."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._buffers: dict[tuple[Any, ...], Tensor] = {}
        self._state: dict[str, Any] = {}
        self._sources: list[Tensor] = []

    @torch.no_grad()
    def copy(self, model: nn.Module, optimizer: Optimizer, extra: Mapping[str, Any]) -> dict[str, Any]:
        """Return a copy of the state as of now, which the next call overwrites.

        The copies are put on the current stream: they see what was computed before, and nothing later. When this
        returns they are done.
        """
        state = self._current(model, optimizer, extra)
        staged: dict[str, Any] = self._copied(state, ())
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
        return staged

    def _current(self, model: nn.Module, optimizer: Optimizer, extra: Mapping[str, Any]) -> dict[str, Any]:
        """Return the state; finding the names takes tens of milliseconds, so those of the same tensors are kept."""
        sources = _sources(model, optimizer)
        if len(sources) != len(self._sources) or not all(map(_is_same, sources, self._sources)):
            self._state = state_of(model, optimizer, extra)
            # That made the optimizer's state, if it had none yet.
            self._sources = _sources(model, optimizer)
        groups = [
            {**kept, **{name: value for name, value in group.items() if name != "params"}}
            for kept, group in zip(self._state["optimizer"]["param_groups"], optimizer.param_groups, strict=True)
        ]
        optimizer_state = {**self._state["optimizer"], "param_groups": groups}
        return {"model": self._state["model"], "optimizer": optimizer_state, "extra": dict(extra)}

    def _copied(self, value: Any, place: tuple[Any, ...]) -> Any:
        if isinstance(value, Tensor):
            return self._copied_tensor(value, place)
        if isinstance(value, Mapping):
            return {name: self._copied(item, (*place, name)) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self._copied(item, (*place, number)) for number, item in enumerate(value))
        return value

    def _copied_tensor(self, tensor: Tensor, place: tuple[Any, ...]) -> Tensor:
        if place not in self._buffers:
            self._buffers[place] = self._buffer(tensor)
        buffer = self._buffers[place]
        local_part(buffer).copy_(local_part(tensor), non_blocking=True)
        return buffer

    def _buffer(self, tensor: Tensor) -> Tensor:
        local = local_part(tensor)
        host = torch.empty_like(local, device="cpu", pin_memory=local.device.type == "cuda")
        if not isinstance(tensor, DTensor):
            return host
        buffer = torch.empty_like(tensor, device="cpu")
        # The constructor would move the shard to the mesh's device, and memory of the operator is not pinned.
        buffer._local_tensor = host  # type: ignore[attr-defined]
        return buffer


def _sources(model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
    moments = (tensor for state in optimizer.state.values() for tensor in _tensors(state))
    return [*map(local_part, model.parameters()), *moments]


def _tensors(values: Mapping[str, Any]) -> list[Tensor]:
    return [local_part(value) for value in values.values() if isinstance(value, Tensor)]


def _is_same(one: Tensor, other: Tensor) -> bool:
    return one.data_ptr() == other.data_ptr() and one.shape == other.shape
