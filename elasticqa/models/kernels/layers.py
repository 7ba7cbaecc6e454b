"""The parts of an encoder layer other than attention, as differentiable functions on Triton kernels.

Values are bf16 or fp16. Weights and biases are fp32, or of the values' dtype if FSDP gathers them in it; their
gradients have their own dtype.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from elasticqa.models.kernels import triton_kernels
from elasticqa.models.kernels.attention import dropout_threshold

_GELU = triton_kernels("triton_gelu")
_NORM = triton_kernels("triton_residual_norm")
_SUMS = triton_kernels("triton_sums")

# Block sizes: the fastest on an H200 for 4,096 and 16,384 rows of BERT-base (benchmarks/README.md has the others).
_COLUMNS = 512
"""Columns of a block of a large matrix."""
_GELU_ROWS, _GELU_PROGRAMS, _GELU_WARPS = 2, 512, 2
"""Rows of a block of GELU; programs that share the rows in the backward pass."""
_SUM_ROWS, _SUM_PROGRAMS, _SUM_WARPS = 4, 256, 2
_FINISH_ROWS, _FINISH_COLUMNS = 256, 16
_NORM_PROGRAMS = 660
"""Five per multiprocessor of an H200; each sums over its rows."""


def linear(values: Tensor, half_weight: Tensor, half_bias: Tensor | None, *parameters: Tensor) -> Tensor:
    """Return values @ half_weight.T + half_bias; the gradients flow to ``parameters``.

    ``values`` (rows, in), ``half_weight`` (out, in) and ``half_bias`` (out,) have the compute dtype. ``half_weight``
    and ``half_bias`` are the concatenated copies of ``parameters``: first all weights, then all biases.
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
        # Compute the product in the parameters' dtype, which saves a copy from the compute dtype.
        of_weights = torch.mm(gradient.t(), values, out_dtype=ctx.dtype).chunk(ctx.num_weights)
        of_biases = column_sums(gradient, ctx.dtype).chunk(ctx.num_weights) if ctx.has_bias else ()
        return gradient @ weight, None, None, *of_weights, *of_biases


def gelu(values: Tensor, bias: Tensor) -> Tensor:
    """Return GELU(values + bias) of (rows, width), exact rather than the tanh approximation."""
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

    ``values`` are (rows, width), ``residual`` has as many values in any shape, since FSDP's hooks do not accept views.
    ``seed`` is (1,) int32, None without dropout.
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
        ctx.constants = (dropout_threshold(dropout), 1 / (1 - dropout))
        _NORM.residual_layer_norm[(num_rows,)](
            values, bias, residual, weight, shift, output, means, inverses, seed, width, epsilon, *ctx.constants,
            WIDTH=_next_power_of_two(width), HAS_DROPOUT=seed is not None,
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
            num_rows, width, *ctx.constants, WIDTH=_next_power_of_two(width), HAS_DROPOUT=seed is not None,
        )  # fmt: skip
        of_bias, of_weight, of_shift = _finish(sums, weight.dtype).unbind()
        return of_values, of_bias, of_residual, of_weight, of_shift, None, None, None


def column_sums(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the sums over the rows of (rows, width), computed in fp32 in a fixed order."""
    num_rows, width = values.shape
    sums = values.new_empty((1, _SUM_PROGRAMS, width), dtype=torch.float32)
    grid = (-(-width // _COLUMNS), _SUM_PROGRAMS)
    _SUMS.partial_sums[grid](values, sums, num_rows, width, ROWS=_SUM_ROWS, COLUMNS=_COLUMNS, num_warps=_SUM_WARPS)
    return _finish(sums, dtype)[0]


def _finish(sums: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the sums over the second dimension of (matrices, partial sums, width) in the dtype."""
    matrices, num_partial, width = sums.shape
    output = sums.new_empty((matrices, width), dtype=dtype)
    grid = (-(-width // _FINISH_COLUMNS), matrices)
    _SUMS.finish_sums[grid](sums, output, num_partial, width, ROWS=_FINISH_ROWS, COLUMNS=_FINISH_COLUMNS)
    return output


def _next_power_of_two(width: int) -> int:
    """Return the smallest power of two that is at least ``width``."""
    return 1 << (width - 1).bit_length()
