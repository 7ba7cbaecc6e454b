"""Encoder layers on kernels of ours, in place of slower equals: the model's weights and their names stay."""

from collections.abc import Callable, Sequence
from functools import partial
from types import MethodType
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers.activations import GELUActivation

from elasticqa.data.micro_batch import MicroBatch
from elasticqa.models.kernels.attention import attention, draw_seeds
from elasticqa.models.kernels.layers import gelu, linear, residual_norm
from elasticqa.models.question_answering import encoder_layers


class Weights(Protocol):
    """Where layers find their weights in the type of the computation."""

    def joined(self, owners: Sequence[nn.Module], name: str) -> Callable[[], Tensor]:
        """Return what gives the parameters of that name, one below the other, in a forward pass."""


class HalfWeights:
    """Made from fp32 ones all at once before each forward pass."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._halves: list[Tensor] = []
        self._parameters: list[Tensor] = []

    def joined(self, owners: Sequence[nn.Module], name: str) -> Callable[[], Tensor]:
        """Return what gives the place where they lie from now on."""
        parameters = [getattr(owner, name) for owner in owners]
        sizes = [len(parameter) for parameter in parameters]
        place = torch.empty((sum(sizes), *parameters[0].shape[1:]), dtype=self._dtype, device=parameters[0].device)
        self._halves += place.split(sizes)
        self._parameters += parameters
        return lambda: place

    @torch.no_grad()
    def refresh(self, *_: Any) -> None:
        """Copy the weights."""
        torch._foreach_copy_(self._halves, self._parameters)


class GatheredWeights:
    """Gathered by FSDP before each layer, in the type of the computation already."""

    def joined(self, owners: Sequence[nn.Module], name: str) -> Callable[[], Tensor]:
        """Return what joins them anew each time: where they are gathered is FSDP's business."""

        def join() -> Tensor:
            parameters = [getattr(owner, name).detach() for owner in owners]
            return parameters[0] if len(parameters) == 1 else torch.cat(parameters)

        return join


class Seeds:
    """What the dropouts of a forward pass follow from, drawn all at once before it: a draw each is a kernel each."""

    def __init__(self) -> None:
        self._count = 0
        self._drawn: Tensor | None = None

    def place(self) -> Callable[[], Tensor]:
        """Return what gives one dropout its seed, (1,) int32, of the forward pass under way."""
        place = self._count
        self._count += 1
        return lambda: self._of(place)

    def _of(self, place: int) -> Tensor:
        assert self._drawn is not None
        return self._drawn[place : place + 1]

    def draw(self, model: nn.Module, _: Any) -> None:
        """Draw those of the forward pass that begins."""
        self._drawn = draw_seeds(self._count, next(model.parameters()).device)


def fuse(model: nn.Module, dtype: torch.dtype, *, is_sharded: bool) -> None:
    """Exchange how the encoder's layers are computed, in place.

    Between layers values are then of the type, where LayerNorm under autocast gives fp32.

    Args:
        model: of a packable type, wrapped, on a device that has the kernel of `packed_kernel`.
        dtype: of the computation.
        is_sharded: FSDP gathers the weights before each layer, in that type.
    """
    halves, seeds = HalfWeights(dtype), Seeds()
    weights: Weights = GatheredWeights() if is_sharded else halves
    for layer in encoder_layers(model):
        for module in layer.modules():
            if (forward := _forward_of(module, weights, seeds)) is not None:
                module.forward = MethodType(forward, module)
    if weights is halves:
        model.register_forward_pre_hook(halves.refresh)
    model.register_forward_pre_hook(seeds.draw)


def _forward_of(module: Any, weights: Weights, seeds: Seeds) -> Callable[..., Any] | None:
    """Return what computes a module from now on, or None if it stays as it is."""
    if _has(module, "query", "key", "value", "attention_head_size"):
        parts = (module.query, module.key, module.value)
        half = (weights.joined(parts, "weight"), weights.joined(parts, "bias"))
        return partial(_attend, parts, half, seeds.place())
    if _has(module, "dense", "dropout", "LayerNorm"):
        return partial(_finish, weights.joined([module.dense], "weight"), seeds.place())
    if isinstance(getattr(module, "intermediate_act_fn", None), GELUActivation):
        return partial(_expand, weights.joined([module.dense], "weight"))
    return None


def _has(module: nn.Module, *names: str) -> bool:
    return all(hasattr(module, name) for name in names)


def _attend(
    parts: Sequence[nn.Linear],
    half: tuple[Callable[[], Tensor], Callable[[], Tensor]],
    seed: Callable[[], Tensor],
    module: Any,
    hidden_states: Tensor,
    *_: Any,
    packing: MicroBatch,
    **__: Any,
) -> tuple[Tensor, None]:
    """Do what a self-attention does, with one product for query, key and value."""
    half_weight, half_bias = half[0](), half[1]()
    rows = hidden_states.flatten(0, 1).to(half_weight.dtype)
    size = module.attention_head_size
    # Read anew in each pass: what FSDP gathers are other tensors than those that it keeps.
    parameters = [*(part.weight for part in parts), *(part.bias for part in parts)]
    packed = linear(rows, half_weight, half_bias, *parameters).view(-1, 3, module.num_attention_heads, size)
    dropout = module.dropout.p if module.training else 0.0
    output = attention(packed, packing.cu_lengths, packing.max_length, dropout, size**-0.5, seed())
    return output.view(hidden_states.shape), None


def _expand(weight: Callable[[], Tensor], module: Any, hidden_states: Tensor) -> Tensor:
    """Do what the first half of the feed-forward network does."""
    values = linear(hidden_states.flatten(0, 1), weight(), None, module.dense.weight)
    return gelu(values, module.dense.bias)[None]


def _finish(
    weight: Callable[[], Tensor],
    seed: Callable[[], Tensor],
    module: Any,
    hidden_states: Tensor,
    input_tensor: Tensor,
) -> Tensor:
    """Do what the output of attention or of the feed-forward network does: project, drop, add, normalize."""
    values = linear(hidden_states.flatten(0, 1), weight(), None, module.dense.weight)
    residual = input_tensor.to(values.dtype)
    dropout = module.dropout.p if module.training else 0.0
    drawn = seed() if dropout > 0 else None
    return residual_norm(values, module.dense.bias, residual, module.LayerNorm, dropout, drawn)
