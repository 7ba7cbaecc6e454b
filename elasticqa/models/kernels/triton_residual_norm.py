"""Triton kernels: bias, dropout, residual and LayerNorm in one pass over the rows, their gradients in another."""

# mypy: disable-error-code="misc, no-untyped-def, no-untyped-call, untyped-decorator"
# Triton compiles these functions from their source: their arguments are pointers and blocks, which have no types here.

import importlib
from typing import Any

triton: Any = importlib.import_module("triton")
tl: Any = importlib.import_module("triton.language")


@triton.jit
def _kept(seed, row, columns, width, threshold):
    """Return where dropout keeps a value; the dropped fraction is (2**31 + threshold) / 2**32.

    The hash is `lowbias32` of Wellons' hash prospector (public domain) without its last step, which does not change
    the high bits.
    """
    bits = (row * width + columns).to(tl.uint32) ^ seed.to(tl.uint32)
    bits = (bits ^ (bits >> 16)) * 0x7FEB352D
    bits = (bits ^ (bits >> 15)) * 0x846CA68B
    return bits.to(tl.int32, bitcast=True) >= threshold


@triton.jit
def residual_layer_norm(
    values, bias, residual, weight, shift, output, means, inverses, seed,
    width, epsilon, threshold, keep_factor,
    WIDTH: tl.constexpr, HAS_DROPOUT: tl.constexpr,
):  # fmt: skip
    """Write a row of LayerNorm(residual + dropout(values + bias)), its mean and its inverse standard deviation."""
    row = tl.program_id(0)
    columns = tl.arange(0, WIDTH)
    is_column = columns < width
    # The matrix may have more than 2**31 values, a row does not.
    offsets = tl.cast(row, tl.int64) * width + columns
    x = tl.load(values + offsets, mask=is_column, other=0.0).to(tl.float32)
    x += tl.load(bias + columns, mask=is_column, other=0.0)
    if HAS_DROPOUT:
        x = tl.where(_kept(tl.load(seed), row, columns, width, threshold), x * keep_factor, 0.0)
    x += tl.load(residual + offsets, mask=is_column, other=0.0).to(tl.float32)
    mean = tl.sum(x, 0) / width
    centred = tl.where(is_column, x - mean, 0.0)
    inverse = 1 / tl.sqrt(tl.sum(centred * centred, 0) / width + epsilon)
    w = tl.load(weight + columns, mask=is_column, other=0.0)
    b = tl.load(shift + columns, mask=is_column, other=0.0)
    tl.store(output + offsets, (centred * inverse * w + b).to(output.dtype.element_ty), mask=is_column)
    tl.store(means + row, mean)
    tl.store(inverses + row, inverse)


@triton.jit
def residual_layer_norm_backward(
    gradient, values, bias, residual, weight, means, inverses, seed,
    value_gradient, residual_gradient, partial_sums,
    num_rows, width, threshold, keep_factor,
    WIDTH: tl.constexpr, HAS_DROPOUT: tl.constexpr,
):  # fmt: skip
    """Write the gradients of this program's rows, and their sums for bias, weight and shift, (3, programs, width)."""
    program, num_programs = tl.program_id(0), tl.num_programs(0)
    columns = tl.arange(0, WIDTH)
    is_column = columns < width
    w = tl.load(weight + columns, mask=is_column, other=0.0)
    b = tl.load(bias + columns, mask=is_column, other=0.0)
    bias_sum = tl.zeros([WIDTH], tl.float32)
    weight_sum = tl.zeros([WIDTH], tl.float32)
    shift_sum = tl.zeros([WIDTH], tl.float32)
    for row in range(program, num_rows, num_programs):
        offsets = tl.cast(row, tl.int64) * width + columns
        g = tl.load(gradient + offsets, mask=is_column, other=0.0).to(tl.float32)
        x = tl.load(values + offsets, mask=is_column, other=0.0).to(tl.float32) + b
        if HAS_DROPOUT:
            kept = _kept(tl.load(seed), row, columns, width, threshold)
            x = tl.where(kept, x * keep_factor, 0.0)
        x += tl.load(residual + offsets, mask=is_column, other=0.0).to(tl.float32)
        inverse = tl.load(inverses + row)
        normal = tl.where(is_column, (x - tl.load(means + row)) * inverse, 0.0)
        weight_sum += g * normal
        shift_sum += g
        g = g * w
        g = (g - normal * (tl.sum(g * normal, 0) / width) - tl.sum(g, 0) / width) * inverse
        tl.store(residual_gradient + offsets, g.to(residual_gradient.dtype.element_ty), mask=is_column)
        if HAS_DROPOUT:
            g = tl.where(kept, g * keep_factor, 0.0)
        bias_sum += tl.where(is_column, g, 0.0)
        tl.store(value_gradient + offsets, g.to(value_gradient.dtype.element_ty), mask=is_column)
    sums = partial_sums + program * width + columns
    tl.store(sums, bias_sum, mask=is_column)
    tl.store(sums + num_programs * width, weight_sum, mask=is_column)
    tl.store(sums + 2 * num_programs * width, shift_sum, mask=is_column)
