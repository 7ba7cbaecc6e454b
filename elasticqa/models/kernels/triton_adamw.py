"""Triton kernel: AdamW over all weights in one launch."""

# mypy: disable-error-code="misc, no-untyped-def, no-untyped-call, untyped-decorator"
# Triton compiles these functions from their source: their arguments are pointers and blocks, which have no types here.

import importlib
from typing import Any

triton: Any = importlib.import_module("triton")
tl: Any = importlib.import_module("triton.language")


@triton.jit
def _floats(address, IS_ALIGNED: tl.constexpr):
    """Load a pointer to fp32 values; if IS_ALIGNED, it is a multiple of 16 bytes."""
    base = tl.load(address)
    if IS_ALIGNED:
        base = tl.multiple_of(base, 16)
    return base.to(tl.pointer_type(tl.float32))


@triton.jit
def adamw_update(
    addresses, chunk_tensors, chunk_offsets, sizes, decays, rate, corrections, divisor, skip,
    num_tensors, beta1, beta2, epsilon, CHUNK: tl.constexpr, IS_ALIGNED: tl.constexpr,
):  # fmt: skip
    """Update one chunk of one weight, unless ``skip`` is 1.

    The rows of ``addresses`` point to weights, gradients, first moments and second moments, all fp32.
    """
    if tl.load(skip) != 0:
        return
    tensor = tl.load(chunk_tensors + tl.program_id(0))
    offsets = tl.load(chunk_offsets + tl.program_id(0)) + tl.arange(0, CHUNK)
    is_inside = offsets < tl.load(sizes + tensor)
    bases = addresses + tensor
    weight = _floats(bases, IS_ALIGNED) + offsets
    gradient = _floats(bases + num_tensors, IS_ALIGNED) + offsets
    average = _floats(bases + 2 * num_tensors, IS_ALIGNED) + offsets
    square = _floats(bases + 3 * num_tensors, IS_ALIGNED) + offsets
    lr = tl.load(rate)
    g = tl.load(gradient, mask=is_inside, other=0.0) / tl.load(divisor)
    w = tl.load(weight, mask=is_inside, other=0.0)
    m = tl.load(average, mask=is_inside, other=0.0)
    v = tl.load(square, mask=is_inside, other=0.0)
    w = w * (1 - lr * tl.load(decays + tensor))
    m = m + (1 - beta1) * (g - m)
    v = beta2 * v + (1 - beta2) * g * g
    scale = tl.sqrt(v) / tl.sqrt(tl.load(corrections + 1)) + epsilon
    w = w - lr / tl.load(corrections) * m / scale
    tl.store(weight, w, mask=is_inside)
    tl.store(average, m, mask=is_inside)
    tl.store(square, v, mask=is_inside)
