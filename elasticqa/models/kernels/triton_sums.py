"""Triton kernels: sums over the rows of a matrix, in two passes of fixed order."""

# mypy: disable-error-code="misc, no-untyped-def, no-untyped-call, untyped-decorator"
# Triton compiles these functions from their source: their arguments are pointers and blocks, which have no types here.

import importlib
from typing import Any

triton: Any = importlib.import_module("triton")
tl: Any = importlib.import_module("triton.language")


@triton.jit
def partial_sums(values, sums, num_rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Write the sums over this program's rows, (programs, width)."""
    program, num_programs = tl.program_id(1), tl.num_programs(1)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    is_column = columns < width
    total = tl.zeros([COLUMNS], tl.float32)
    for start in range(program * ROWS, num_rows, num_programs * ROWS):
        rows = tl.arange(0, ROWS)
        is_inside = (start + rows < num_rows)[:, None] & is_column[None, :]
        # The matrix may have more than 2**31 values, a block does not.
        offsets = tl.cast(start, tl.int64) * width + (rows[:, None] * width + columns[None, :])
        block = tl.load(values + offsets, mask=is_inside, other=0.0)
        total += tl.sum(block.to(tl.float32), 0)
    tl.store(sums + program * width + columns, total, mask=is_column)


@triton.jit
def finish_sums(sums, output, num_partial, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Write the sums over the partial sums of each matrix, (matrices, width)."""
    matrix = tl.program_id(1)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    is_column = columns < width
    total = tl.zeros([COLUMNS], tl.float32)
    for start in range(0, num_partial, ROWS):
        rows = start + tl.arange(0, ROWS)
        is_inside = (rows < num_partial)[:, None] & is_column[None, :]
        offsets = (matrix * num_partial + rows)[:, None] * width + columns[None, :]
        total += tl.sum(tl.load(sums + offsets, mask=is_inside, other=0.0), 0)
    tl.store(output + matrix * width + columns, total, mask=is_column)
