"""Attention within packed features as a differentiable torch operator."""

import math
from typing import Any

import torch
from torch import Tensor

from elasticqa.models.kernels import triton_kernels

_KERNELS = triton_kernels("triton_attention")

HEAD_SIZES = (16, 32, 64, 128)
_BLOCK = 64
_WARPS = 4
_STAGES, _BACKWARD_STAGES = 2, 1


def has_flash_attention(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether torch's flash attention supports the device and the dtype."""
    return (
        device.type == "cuda"
        and dtype in (torch.bfloat16, torch.float16)
        # Unlike get_device_capability, torch.compile turns this call into a constant.
        and torch.cuda.get_device_properties(device).major >= 8
    )


def has_triton_attention(device: torch.device, dtype: torch.dtype, head_size: int | None) -> bool:
    """Whether the kernels support the device, dtype and head size."""
    return _KERNELS is not None and head_size in HEAD_SIZES and has_flash_attention(device, dtype)


def draw_seeds(count: int, device: torch.device) -> Tensor:
    """Return seeds of dropouts, (count,) int32, drawn from torch's generator of the device."""
    return torch.randint(2**31 - 1, (count,), dtype=torch.int32, device=device)


def attention(
    packed: Tensor, cu_lengths: Tensor, max_length: int, dropout: float, scale: float, seed: Tensor | None = None
) -> Tensor:
    """Return attention within each feature, (T, heads, head size).

    ``packed`` is (T, 3, heads, head size), query, key and value of each token; ``max_length`` an upper bound of a
    feature's length; ``seed`` (1,) int32, drawn if None.
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
        packed.stride(0), num_tokens, num_heads, scale * math.log2(math.e), dropout_threshold(dropout), 1 - dropout,
        SIZE=size, QUERIES=_BLOCK, KEYS=_BLOCK, HAS_DROPOUT=dropout > 0, num_warps=_WARPS, num_stages=_STAGES,
    )  # fmt: skip
    return output, log_sums


@_attention.register_fake
def _(packed: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    num_tokens, _three, num_heads, size = packed.shape
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
        packed.stride(0), num_tokens, num_heads, scale, scale * math.log2(math.e),
        dropout_threshold(dropout), 1 - dropout,
        SIZE=size, BLOCK=_BLOCK, HAS_DROPOUT=dropout > 0, num_warps=_WARPS, num_stages=_BACKWARD_STAGES,
    )  # fmt: skip
    return result


@_backward.register_fake
def _(_gradient: Tensor, packed: Tensor, *_: Any) -> Tensor:
    return packed.new_empty(packed.shape)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    packed, cu_lengths, seed, *ctx.constants = inputs
    ctx.save_for_backward(packed, *output, cu_lengths, seed)
    ctx.mark_non_differentiable(output[1])


def _differentiate(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return _backward(gradient, *ctx.saved_tensors, *ctx.constants), *[None] * 5


_attention.register_autograd(_differentiate, setup_context=_setup)


def dropout_threshold(dropout: float) -> int:
    """Return the signed 32-bit threshold: a value with a smaller random number is dropped."""
    return round((dropout - 0.5) * 2**32)
