"""The parts of an encoder layer beside attention, on kernels of ours, each with its gradient.

Values are bf16 or fp16; weights and biases are fp32, or of the type of the values where FSDP gathers them so, and get
gradients of their own type.
"""

import importlib
import importlib.util
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

_HAS_TRITON = importlib.util.find_spec("triton") is not None
_GELU: Any = importlib.import_module(f"{__package__}.triton_gelu") if _HAS_TRITON else None
_NORM: Any = importlib.import_module(f"{__package__}.triton_residual_norm") if _HAS_TRITON else None
_SUMS: Any = importlib.import_module(f"{__package__}.triton_sums") if _HAS_TRITON else None

# The fastest on an H200 at 4,096 and at 16,384 rows of BERT-base; benchmarks/README.md has what others took.
_COLUMNS = 512
"""Of a block of a large matrix."""
_GELU_ROWS, _GELU_PROGRAMS, _GELU_WARPS = 2, 512, 2
"""Rows of a block of GELU, and how many programs share the rows where they sum them."""
_SUM_ROWS, _SUM_PROGRAMS, _SUM_WARPS = 4, 256, 2
_FINISH_ROWS, _FINISH_COLUMNS = 256, 16
_NORM_PROGRAMS = 660
"""Five for each of a Hopper GPU's processors; each keeps sums of its rows."""


def linear(values: Tensor, half_weight: Tensor, half_bias: Tensor | None, *parameters: Tensor) -> Tensor:
    """Return values @ half_weight.T + half_bias; gradients go to the parameters.

    Args:
        values: (rows, in), of the type of ``half_weight``.
        half_weight: (out, in), the weights one below the other in the type of the computation.
        half_bias: (out,), or None.
        parameters: the weights, then, with a bias, as many biases.
    """
    output: Tensor = _Linear.apply(values, half_weight, half_bias, *parameters)  # type: ignore[no-untyped-call]
    return output


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, weight: Tensor, bias: Tensor | None, *parameters: Tensor) -> Tensor:
        ctx.save_for_backward(values, weight)
        ctx.num_weights = len(parameters) // (1 if bias is None else 2)
        ctx.has_bias = bias is not None
        ctx.dtype = parameters[0].dtype
        return F.linear(values, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        gradient = gradients[0].contiguous()
        values, weight = ctx.saved_tensors
        # A product whose result is fp32 spares a copy from the type of the computation.
        of_weights = torch.mm(gradient.t(), values, out_dtype=ctx.dtype).chunk(ctx.num_weights)
        of_biases = column_sums(gradient, ctx.dtype).chunk(ctx.num_weights) if ctx.has_bias else ()
        return gradient @ weight, None, None, *of_weights, *of_biases


def gelu(values: Tensor, bias: Tensor) -> Tensor:
    """Return GELU(values + bias), exact and not by tanh.

    Args:
        values: (rows, width).
        bias: (width,).
    """
    output: Tensor = _Gelu.apply(values, bias)  # type: ignore[no-untyped-call]
    return output


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(values, bias)
        output = torch.empty_like(values)
        num_rows, width = values.shape
        num_programs = -(-width // _COLUMNS) * -(-num_rows // _GELU_ROWS)
        _GELU.gelu[(num_programs,)](
            values, bias, output, num_rows, width, ROWS=_GELU_ROWS, COLUMNS=_COLUMNS, num_warps=_GELU_WARPS
        )
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        gradient = gradients[0].contiguous()
        values, bias = ctx.saved_tensors
        num_rows, width = values.shape
        output = torch.empty_like(values)
        sums = bias.new_empty((1, _GELU_PROGRAMS, width), dtype=torch.float32)
        _GELU.gelu_backward[(-(-width // _COLUMNS), _GELU_PROGRAMS)](
            gradient, values, bias, output, sums, num_rows, width,
            ROWS=_GELU_ROWS, COLUMNS=_COLUMNS, num_warps=_GELU_WARPS,
        )  # fmt: skip
        return output, _finish(sums, bias.dtype)[0]


def residual_norm(
    values: Tensor, bias: Tensor, residual: Tensor, norm: torch.nn.LayerNorm, dropout: float, seed: Tensor | None
) -> Tensor:
    """Return LayerNorm(residual + dropout(values + bias)), computed in fp32, of the shape of ``residual``.

    Args:
        values: (rows, width).
        bias: (width,).
        residual: as many values, in any shape; the result is no view, which FSDP's hooks ask of a layer.
        norm: with weight and bias.
        dropout: probability.
        seed: (1,) int32, what the dropout follows from; None where nothing is dropped.
    """
    output: Tensor = _ResidualNorm.apply(values, bias, residual, norm.weight, norm.bias, seed, dropout, norm.eps)  # type: ignore[no-untyped-call]
    return output


class _ResidualNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        bias: Tensor,
        residual: Tensor,
        weight: Tensor,
        shift: Tensor,
        seed: Tensor | None,
        dropout: float,
        epsilon: float,
    ) -> Tensor:
        num_rows, width = values.shape
        output = torch.empty_like(residual)
        means, inverses = weight.new_empty((2, num_rows), dtype=torch.float32)
        ctx.save_for_backward(values, bias, residual, weight, means, inverses, seed)
        ctx.constants = (threshold(dropout), 1 / (1 - dropout))
        _NORM.residual_layer_norm[(num_rows,)](
            values, bias, residual, weight, shift, output, means, inverses, seed, width, epsilon, *ctx.constants,
            WIDTH=power_of_two(width), HAS_DROPOUT=seed is not None,
        )  # fmt: skip
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        gradient = gradients[0].contiguous()
        values, bias, residual, weight, means, inverses, seed = ctx.saved_tensors
        num_rows, width = values.shape
        of_values, of_residual = torch.empty_like(values), torch.empty_like(residual)
        num_programs = min(num_rows, _NORM_PROGRAMS)
        sums = weight.new_empty((3, num_programs, width), dtype=torch.float32)
        _NORM.residual_layer_norm_backward[(num_programs,)](
            gradient, values, bias, residual, weight, means, inverses, seed, of_values, of_residual, sums,
            num_rows, width, *ctx.constants, WIDTH=power_of_two(width), HAS_DROPOUT=seed is not None,
        )  # fmt: skip
        of_bias, of_weight, of_shift = _finish(sums, weight.dtype).unbind()
        return of_values, of_bias, of_residual, of_weight, of_shift, None, None, None


def column_sums(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the sums over the rows of (rows, width), made in fp32 in an order that is always the same."""
    num_rows, width = values.shape
    sums = values.new_empty((1, _SUM_PROGRAMS, width), dtype=torch.float32)
    grid = (-(-width // _COLUMNS), _SUM_PROGRAMS)
    _SUMS.partial_sums[grid](values, sums, num_rows, width, ROWS=_SUM_ROWS, COLUMNS=_COLUMNS, num_warps=_SUM_WARPS)
    return _finish(sums, dtype)[0]


def _finish(sums: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the sums over the second dimension of (matrices, partial sums, width) in the type."""
    matrices, num_partial, width = sums.shape
    output = sums.new_empty((matrices, width), dtype=dtype)
    grid = (-(-width // _FINISH_COLUMNS), matrices)
    _SUMS.finish_sums[grid](sums, output, num_partial, width, ROWS=_FINISH_ROWS, COLUMNS=_FINISH_COLUMNS)
    return output


def threshold(dropout: float) -> int:
    """Return the signed number of 32 bits below which a random one drops its value."""
    return round((dropout - 0.5) * 2**32)


def power_of_two(width: int) -> int:
    """Return the smallest power of two that is not below the width."""
    return 1 << (width - 1).bit_length()
