"""LayerNorm(residual + dropout(values + bias)) as one operator of torch, with a gradient."""

import importlib
import importlib.util
from typing import Any

import torch
from torch import Tensor

_KERNELS: Any = (
    importlib.import_module("elasticqa.kernels.residual_norm") if importlib.util.find_spec("triton") else None
)

_WARPS = 4
_PROGRAMS = 528
"""Of the backward pass: four for each of a Hopper GPU's 132 processors; each keeps sums of its rows."""


def residual_norm(values: Tensor, bias: Tensor, residual: Tensor, norm: torch.nn.LayerNorm, dropout: float) -> Tensor:
    """Return the rows, of the type of ``values``; sums and norm are computed in fp32.

    Args:
        values: (..., width), contiguous, in bf16 or fp16.
        bias: (width,) fp32, added to the values before dropout.
        residual: as ``values``, of any floating type.
        norm: with weight and bias in fp32.
        dropout: probability, from torch's generator of the device.
    """
    seed = torch.zeros(1, dtype=torch.int32, device=values.device)
    if dropout > 0:
        seed = torch.randint(2**31 - 1, (1,), dtype=torch.int32, device=values.device)
    residual = residual.to(values.dtype)
    output: Tensor = _normalize(values, bias, residual, norm.weight, norm.bias, seed, dropout, norm.eps)[0]
    return output


@torch.library.custom_op("elasticqa::residual_norm", mutates_args=())
def _normalize(
    values: Tensor,
    bias: Tensor,
    residual: Tensor,
    weight: Tensor,
    shift: Tensor,
    seed: Tensor,
    dropout: float,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor]:
    width = values.shape[-1]
    num_rows = values.numel() // width
    values, residual = values.contiguous(), residual.contiguous()
    output = torch.empty_like(values)
    means, inverses = (torch.empty(num_rows, dtype=torch.float32, device=values.device) for _ in range(2))
    _KERNELS.normalize[(num_rows,)](
        values, bias, residual, weight, shift, output, means, inverses, seed,
        width, epsilon, _threshold(dropout), 1 / (1 - dropout),
        WIDTH=_power_of_two(width), HAS_DROPOUT=dropout > 0, num_warps=_WARPS,
    )  # fmt: skip
    return output, means, inverses


@_normalize.register_fake
def _(
    values: Tensor,
    bias: Tensor,
    residual: Tensor,
    weight: Tensor,
    shift: Tensor,
    seed: Tensor,
    dropout: float,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor]:
    num_rows = values.numel() // values.shape[-1]
    means, inverses = (values.new_empty(num_rows, dtype=torch.float32) for _ in range(2))
    return values.new_empty(values.shape), means, inverses


@torch.library.custom_op("elasticqa::residual_norm_backward", mutates_args=())
def _backward(
    gradient: Tensor,
    values: Tensor,
    bias: Tensor,
    residual: Tensor,
    weight: Tensor,
    means: Tensor,
    inverses: Tensor,
    seed: Tensor,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:
    width = values.shape[-1]
    num_rows = values.numel() // width
    gradient, values, residual = gradient.contiguous(), values.contiguous(), residual.contiguous()
    value_gradient, residual_gradient = torch.empty_like(values), torch.empty_like(residual)
    num_programs = min(num_rows, _PROGRAMS)
    partial_sums = torch.empty((3, num_programs, width), dtype=torch.float32, device=values.device)
    _KERNELS.normalize_backward[(num_programs,)](
        gradient, values, bias, residual, weight, means, inverses, seed,
        value_gradient, residual_gradient, partial_sums,
        num_rows, width, _threshold(dropout), 1 / (1 - dropout),
        WIDTH=_power_of_two(width), HAS_DROPOUT=dropout > 0, num_warps=_WARPS,
    )  # fmt: skip
    return value_gradient, residual_gradient, partial_sums.sum(1)


@_backward.register_fake
def _(
    gradient: Tensor,
    values: Tensor,
    bias: Tensor,
    residual: Tensor,
    weight: Tensor,
    means: Tensor,
    inverses: Tensor,
    seed: Tensor,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:
    sums = values.new_empty((3, values.shape[-1]), dtype=torch.float32)
    return values.new_empty(values.shape), residual.new_empty(residual.shape), sums


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    values, bias, residual, weight, _, seed, ctx.dropout, _ = inputs
    ctx.save_for_backward(values, bias, residual, weight, *output[1:], seed)
    ctx.mark_non_differentiable(*output[1:])


def _differentiate(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    of_values, of_residual, sums = _backward(gradient, *ctx.saved_tensors, ctx.dropout)
    # FSDP gathers parameters in the compute type.
    of_bias, of_weight, of_shift = sums.to(ctx.saved_tensors[1].dtype).unbind()
    return of_values, of_bias, of_residual, of_weight, of_shift, None, None, None


_normalize.register_autograd(_differentiate, setup_context=_setup)


def _threshold(dropout: float) -> int:
    """Return the signed number of 32 bits below which a random one drops its value."""
    return round((dropout - 0.5) * 2**32)


def _power_of_two(width: int) -> int:
    return 1 << (width - 1).bit_length()
