"""Triton kernels: GELU of values plus a bias, and its gradients."""

# mypy: disable-error-code="misc, no-untyped-def, no-untyped-call, untyped-decorator"
# Triton compiles these functions from their source: their arguments are pointers and blocks, which have no types here.

import importlib
from typing import Any

triton: Any = importlib.import_module("triton")
tl: Any = importlib.import_module("triton.language")


@triton.jit
def gelu(values, bias, output, num_rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Write a block of x / 2 * (1 + erf(x / sqrt(2))) where x = values + bias."""
    # A one-dimensional grid: the other dimensions allow at most 65,535 programs.
    num_blocks = tl.cdiv(width, COLUMNS)
    start = tl.program_id(0) // num_blocks * ROWS
    rows = tl.arange(0, ROWS)
    columns = tl.program_id(0) % num_blocks * COLUMNS + tl.arange(0, COLUMNS)
    is_column = columns < width
    is_inside = (start + rows < num_rows)[:, None] & is_column[None, :]
    # The matrix may have more than 2**31 values, a block does not.
    offsets = tl.cast(start, tl.int64) * width + (rows[:, None] * width + columns[None, :])
    x = tl.load(values + offsets, mask=is_inside, other=0.0).to(tl.float32)
    x += tl.load(bias + columns, mask=is_column, other=0.0)[None, :]
    result = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    tl.store(output + offsets, result.to(output.dtype.element_ty), mask=is_inside)


@triton.jit
def gelu_backward(
    gradient, values, bias, output, sums, num_rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Write the gradients of this program's rows, and their sums for the bias, (programs, width)."""
    program, num_programs = tl.program_id(1), tl.num_programs(1)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    is_column = columns < width
    b = tl.load(bias + columns, mask=is_column, other=0.0)[None, :]
    total = tl.zeros([COLUMNS], tl.float32)
    for start in range(program * ROWS, num_rows, num_programs * ROWS):
        rows = tl.arange(0, ROWS)
        is_inside = (start + rows < num_rows)[:, None] & is_column[None, :]
        offsets = tl.cast(start, tl.int64) * width + (rows[:, None] * width + columns[None, :])
        x = tl.load(values + offsets, mask=is_inside, other=0.0).to(tl.float32) + b
        g = tl.load(gradient + offsets, mask=is_inside, other=0.0).to(tl.float32)
        slope = 0.5 * (1 + tl.erf(x * 0.7071067811865476))
        slope += x * 0.3989422804014327 * tl.exp2(x * x * -0.7213475204444817)
        g = g * slope
        tl.store(output + offsets, g.to(output.dtype.element_ty), mask=is_inside)
        total += tl.sum(g, 0)
    tl.store(sums + program * width + columns, total, mask=is_column)
