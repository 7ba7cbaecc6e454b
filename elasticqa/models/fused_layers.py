"""Replace the forward functions of encoder layers by fused Triton kernels; weights and their names do not change."""

from collections.abc import Callable, Sequence
from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from transformers.activations import GELUActivation

from elasticqa.data.micro_batch import MicroBatch
from elasticqa.distributed.torch_internals import foreach_copy_
from elasticqa.models.kernels.attention import attention, draw_seeds
from elasticqa.models.kernels.layers import gelu, linear, residual_norm
from elasticqa.models.question_answering import encoder_layers

WeightGetter = Callable[[], Tensor]
"""Returns the concatenated weights (or biases) of some modules in the compute dtype; call it in the forward pass."""


class HalfWeights:
    """Copies of fp32 weights in bf16 or fp16, all refreshed at once before each forward pass."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._halves: list[Tensor] = []
        self._parameters: list[Tensor] = []

    def getter(self, owners: Sequence[nn.Module], name: str) -> WeightGetter:
        """Return the getter of the concatenated copies of one parameter of several modules."""
        parameters = [getattr(owner, name) for owner in owners]
        sizes = [len(parameter) for parameter in parameters]
        copy = torch.empty((sum(sizes), *parameters[0].shape[1:]), dtype=self._dtype, device=parameters[0].device)
        self._halves += copy.split(sizes)
        self._parameters += parameters
        return lambda: copy

    @torch.no_grad()
    def refresh(self, *_: Any) -> None:
        """Update the copies; a forward pre-hook."""
        foreach_copy_(self._halves, self._parameters)


def gathered_getter(owners: Sequence[nn.Module], name: str) -> WeightGetter:
    """Return a function that concatenates weights on each call, since FSDP may gather them into other memory."""

    def concatenated() -> Tensor:
        parameters = [getattr(owner, name).detach() for owner in owners]
        return parameters[0] if len(parameters) == 1 else torch.cat(parameters)

    return concatenated


class DropoutSeeds:
    """Draws the seeds of all dropouts of a forward pass with one kernel launch."""

    def __init__(self) -> None:
        self._count = 0
        self._drawn: Tensor | None = None

    def new(self) -> Callable[[], Tensor]:
        """Return a function that returns one dropout's seed, (1,) int32, for the current forward pass."""
        index = self._count
        self._count += 1

        def seed() -> Tensor:
            assert self._drawn is not None
            return self._drawn[index : index + 1]

        return seed

    def draw(self, model: nn.Module, _: Any) -> None:
        """Draw new seeds; a forward pre-hook."""
        self._drawn = draw_seeds(self._count, next(model.parameters()).device)


def fuse_layers(model: nn.Module, dtype: torch.dtype, *, is_sharded: bool) -> None:
    """Replace the forward functions of the encoder's layers, in place; the device must support the attention kernel.

    The layers then return values of this dtype, whereas LayerNorm under autocast returns fp32. If the model is sharded,
    FSDP gathers the weights before each layer, in that dtype.
    """
    halves, seeds = HalfWeights(dtype), DropoutSeeds()
    weights = gathered_getter if is_sharded else halves.getter
    for layer in encoder_layers(model):
        for module in layer.modules():
            if (forward := _forward_of(module, weights, seeds)) is not None:
                module.forward = MethodType(forward, module)
    if not is_sharded:
        model.register_forward_pre_hook(halves.refresh)
    model.register_forward_pre_hook(seeds.draw)


def _forward_of(
    module: Any, weights: Callable[[Sequence[nn.Module], str], WeightGetter], seeds: DropoutSeeds
) -> Callable[..., Any] | None:
    """Return the new forward function of a module, or None to keep its own."""
    if _has(module, "query", "key", "value", "attention_head_size"):
        parts = (module.query, module.key, module.value)
        half = (weights(parts, "weight"), weights(parts, "bias"))
        return partial(_attend, parts, half, seeds.new())
    if _has(module, "dense", "dropout", "LayerNorm"):
        return partial(_finish, weights([module.dense], "weight"), seeds.new())
    if isinstance(getattr(module, "intermediate_act_fn", None), GELUActivation):
        return partial(_expand, weights([module.dense], "weight"))
    return None


def _has(module: nn.Module, *names: str) -> bool:
    return all(hasattr(module, name) for name in names)


def _attend(
    parts: Sequence[nn.Linear],
    half: tuple[WeightGetter, WeightGetter],
    seed: Callable[[], Tensor],
    module: Any,
    hidden_states: Tensor,
    *_: Any,
    packing: MicroBatch,
    **__: Any,
) -> tuple[Tensor, None]:
    """Compute self-attention, with one matrix product for query, key and value."""
    half_weight, half_bias = half[0](), half[1]()
    rows = hidden_states.flatten(0, 1).to(half_weight.dtype)
    size = module.attention_head_size
    # Read the attributes in each pass: FSDP replaces the sharded parameters by gathered ones during a pass.
    parameters = [*(part.weight for part in parts), *(part.bias for part in parts)]
    packed = linear(rows, half_weight, half_bias, *parameters).view(-1, 3, module.num_attention_heads, size)
    dropout = module.dropout.p if module.training else 0.0
    output = attention(packed, packing.cu_lengths, packing.max_length, dropout, size**-0.5, seed())
    return output.view(hidden_states.shape), None


def _expand(weight: WeightGetter, module: Any, hidden_states: Tensor) -> Tensor:
    """Compute the first half of the feed-forward network."""
    values = linear(hidden_states.flatten(0, 1), weight(), None, module.dense.weight)
    return gelu(values, module.dense.bias)[None]


def _finish(
    weight: WeightGetter,
    seed: Callable[[], Tensor],
    module: Any,
    hidden_states: Tensor,
    input_tensor: Tensor,
) -> Tensor:
    """Compute the output of attention or of the feed-forward network: projection, dropout, residual, LayerNorm."""
    values = linear(hidden_states.flatten(0, 1), weight(), None, module.dense.weight)
    residual = input_tensor.to(values.dtype)
    dropout = module.dropout.p if module.training else 0.0
    drawn = seed() if dropout > 0 else None
    return residual_norm(values, module.dense.bias, residual, module.LayerNorm, dropout, drawn)
