"""Attention within packed features as one operator of torch, with a gradient."""

import importlib
import importlib.util
import math
from typing import Any

import torch
from torch import Tensor

# Builds of torch without CUDA come without Triton.
_KERNELS: Any = (
    importlib.import_module(f"{__package__}.triton_attention") if importlib.util.find_spec("triton") else None
)

HEAD_SIZES = (16, 32, 64, 128)
_BLOCK = 64
_WARPS = 4
_STAGES, _BACKWARD_STAGES = 2, 1


def has_kernel(device: torch.device, dtype: torch.dtype, head_size: int | None) -> bool:
    """Whether the kernels run on the device with tensors of the type and heads of the size."""
    return (
        _KERNELS is not None
        and device.type == "cuda"
        and dtype in (torch.bfloat16, torch.float16)
        and head_size in HEAD_SIZES
        # torch.compile folds this call into a constant, unlike get_device_capability.
        and torch.cuda.get_device_properties(device).major >= 8
    )


def draw_seeds(count: int, device: torch.device) -> Tensor:
    """Return (count,) int32 that dropouts follow from, from torch's generator of the device."""
    return torch.randint(2**31 - 1, (count,), dtype=torch.int32, device=device)


def attention(
    packed: Tensor, cu_lengths: Tensor, max_length: int, dropout: float, scale: float, seed: Tensor | None = None
) -> Tensor:
    """Return attention within each feature, (T, heads, head size).

    Args:
        packed: (T, 3, heads, head size), query, key and value of each token.
        cu_lengths: (features + 1,) int32, where each begins.
        max_length: at least the longest feature's tokens.
        dropout: of the probabilities.
        scale: factor of the scores.
        seed: (1,) int32, what the dropout follows from; drawn where None.
    """
    if seed is None:
        seed = draw_seeds(1, packed.device) if dropout > 0 else cu_lengths[:1]
    output: Tensor = _attention(packed, cu_lengths, seed, max_length, dropout, scale)[0]
    return output


@torch.library.custom_op("elasticqa::attention", mutates_args=())
def _attention(
    packed: Tensor, cu_lengths: Tensor, seed: Tensor, max_length: int, dropout: float, scale: float
) -> tuple[Tensor, Tensor]:
    packed = packed.contiguous()
    num_tokens, _, num_heads, size = packed.shape
    output = packed.new_empty((num_tokens, num_heads, size))
    log_sums = packed.new_empty((num_heads, num_tokens), dtype=torch.float32)
    grid = (-(-max_length // _BLOCK), num_heads, len(cu_lengths) - 1)
    _KERNELS.attention_forward[grid](
        *packed.unbind(1), output, log_sums, cu_lengths, seed,
        packed.stride(0), num_tokens, num_heads, scale * math.log2(math.e), _threshold(dropout), 1 - dropout,
        SIZE=size, QUERIES=_BLOCK, KEYS=_BLOCK, HAS_DROPOUT=dropout > 0, num_warps=_WARPS, num_stages=_STAGES,
    )  # fmt: skip
    return output, log_sums


@_attention.register_fake
def _(
    packed: Tensor, cu_lengths: Tensor, seed: Tensor, max_length: int, dropout: float, scale: float
) -> tuple[Tensor, Tensor]:
    num_tokens, _, num_heads, size = packed.shape
    log_sums = packed.new_empty((num_heads, num_tokens), dtype=torch.float32)
    return packed.new_empty((num_tokens, num_heads, size)), log_sums


@torch.library.custom_op("elasticqa::attention_backward", mutates_args=())
def _backward(
    gradient: Tensor,
    packed: Tensor,
    output: Tensor,
    log_sums: Tensor,
    cu_lengths: Tensor,
    seed: Tensor,
    max_length: int,
    dropout: float,
    scale: float,
) -> Tensor:
    packed, gradient = packed.contiguous(), gradient.contiguous()
    num_tokens, _, num_heads, size = packed.shape
    result = torch.empty_like(packed)
    grid = (2 * -(-max_length // _BLOCK), num_heads, len(cu_lengths) - 1)
    _KERNELS.attention_backward[grid](
        gradient, *packed.unbind(1), output, log_sums, cu_lengths, seed, *result.unbind(1),
        packed.stride(0), num_tokens, num_heads, scale, scale * math.log2(math.e), _threshold(dropout), 1 - dropout,
        SIZE=size, BLOCK=_BLOCK, HAS_DROPOUT=dropout > 0, num_warps=_WARPS, num_stages=_BACKWARD_STAGES,
    )  # fmt: skip
    return result


@_backward.register_fake
def _(
    gradient: Tensor,
    packed: Tensor,
    output: Tensor,
    log_sums: Tensor,
    cu_lengths: Tensor,
    seed: Tensor,
    max_length: int,
    dropout: float,
    scale: float,
) -> Tensor:
    return packed.new_empty(packed.shape)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    packed, cu_lengths, seed, *ctx.constants = inputs
    ctx.save_for_backward(packed, *output, cu_lengths, seed)
    ctx.mark_non_differentiable(output[1])


def _differentiate(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return _backward(gradient, *ctx.saved_tensors, *ctx.constants), *[None] * 5


_attention.register_autograd(_differentiate, setup_context=_setup)


def _threshold(dropout: float) -> int:
    """Return the signed number of 32 bits below which a random one drops its probability."""
    return round((dropout - 0.5) * 2**32)
