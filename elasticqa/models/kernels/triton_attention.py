"""Triton kernels: attention within packed features of a few hundred tokens.

A program computes one block of one head of one feature. The backward pass computes probabilities twice: once for
keys and values, once for queries. It therefore needs no atomic additions, so equal inputs give equal bits.
"""

# mypy: disable-error-code="misc, no-untyped-def, no-untyped-call, untyped-decorator"
# Triton compiles these functions from their source: their arguments are pointers and blocks, which have no types here.

import importlib
from typing import Any

triton: Any = importlib.import_module("triton")
tl: Any = importlib.import_module("triton.language")


@triton.jit
def _mixed(x):
    """Return a hash of x: the finalizer `lowbias32` of Wellons' hash prospector (public domain)."""
    x = x ^ (x >> 16)
    x = x * 0x7FEB352D
    x = x ^ (x >> 15)
    x = x * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def _keys_of_rows(seed, head, tokens):
    """Return the hashes of query tokens in a head, for dropout; uint32 of the shape of ``tokens``."""
    return _mixed(tokens.to(tl.uint32) ^ _mixed(seed.to(tl.uint32) + head.to(tl.uint32) * 0x9E3779B9))


@triton.jit
def _keys_of_columns(columns):
    """Return the hashes of key tokens, for dropout."""
    return _mixed(columns.to(tl.uint32) + 0x85EBCA6B)


@triton.jit
def _kept(row_keys, column_keys, threshold):
    """Return where dropout keeps a probability; the dropped fraction is (2**31 + threshold) / 2**32.

    The keys are hashes already, so few operations suffice to combine them: this runs for every probability.
    """
    bits = (row_keys ^ column_keys) * 0x7FEB352D
    bits = (bits ^ (bits >> 15)) * 0x846CA68B
    return bits.to(tl.int32, bitcast=True) >= threshold


@triton.jit
def attention_forward(
    query, key, value, output, log_sums, cu_lengths, seed,
    stride, num_tokens, num_heads, scale_log2, threshold, keep_share,
    SIZE: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, HAS_DROPOUT: tl.constexpr,
):  # fmt: skip
    """Write a block of attention (T, heads, SIZE) and of log2 of the softmax denominators (heads, T)."""
    block, head, feature = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    begin = tl.load(cu_lengths + feature)
    length = tl.load(cu_lengths + feature + 1) - begin
    if block * QUERIES >= length:
        return
    rows = block * QUERIES + tl.arange(0, QUERIES)
    sizes = tl.arange(0, SIZE)
    is_row = rows < length
    # 64 bits for the begin of a feature: a batch may have more than 2**31 values, a feature does not.
    first = begin.to(tl.int64)
    query += first * stride
    key += first * stride
    value += first * stride
    output += first * num_heads * SIZE
    head_offsets = head * SIZE + sizes[None, :]
    q = tl.load(query + rows[:, None] * stride + head_offsets, mask=is_row[:, None], other=0.0)
    highest = tl.full([QUERIES], float("-inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    result = tl.zeros([QUERIES, SIZE], tl.float32)
    if HAS_DROPOUT:
        row_keys = _keys_of_rows(tl.load(seed), head, begin + rows)[:, None]
    for start in range(0, length, KEYS):
        columns = start + tl.arange(0, KEYS)
        is_column = columns < length
        offsets = columns[:, None] * stride + head_offsets
        k = tl.load(key + offsets, mask=is_column[:, None], other=0.0)
        v = tl.load(value + offsets, mask=is_column[:, None], other=0.0)
        scores = tl.dot(q, tl.trans(k)) * scale_log2
        scores = tl.where(is_column[None, :], scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(highest - higher)
        total = total * shrink + tl.sum(weights, 1)
        if HAS_DROPOUT:
            weights = tl.where(_kept(row_keys, _keys_of_columns(columns)[None, :], threshold), weights, 0.0)
        result = result * shrink[:, None] + tl.dot(weights.to(v.dtype), v)
        highest = higher
    result = result * (1 / (keep_share * total))[:, None]
    offsets = rows[:, None] * num_heads * SIZE + head_offsets
    tl.store(output + offsets, result.to(output.dtype.element_ty), mask=is_row[:, None])
    tl.store(log_sums + head * num_tokens + begin + rows, highest + tl.log2(total), mask=is_row)


@triton.jit
def attention_backward(
    gradient, query, key, value, output, log_sums, cu_lengths, seed, query_gradient, key_gradient, value_gradient,
    stride, num_tokens, num_heads, scale, scale_log2, threshold, keep_share,
    SIZE: tl.constexpr, BLOCK: tl.constexpr, HAS_DROPOUT: tl.constexpr,
):  # fmt: skip
    """Write a block of gradients: the first half of the programs for keys and values, the second for queries."""
    number, head, feature = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    num_blocks = tl.num_programs(0) // 2
    begin = tl.load(cu_lengths + feature)
    length = tl.load(cu_lengths + feature + 1) - begin
    block = number % num_blocks
    if block * BLOCK >= length:
        return
    mine = block * BLOCK + tl.arange(0, BLOCK)
    sizes = tl.arange(0, SIZE)
    is_mine = mine < length
    # Use 64 bits, as in the forward pass.
    first = begin.to(tl.int64)
    query += first * stride
    key += first * stride
    value += first * stride
    query_gradient += first * stride
    key_gradient += first * stride
    value_gradient += first * stride
    output += first * num_heads * SIZE
    gradient += first * num_heads * SIZE
    log_sums += head * num_tokens + begin
    head_offsets = head * SIZE + sizes[None, :]
    offsets = mine[:, None] * stride + head_offsets
    output_offsets = mine[:, None] * num_heads * SIZE + head_offsets
    if HAS_DROPOUT:
        step_seed = tl.load(seed)
    if number < num_blocks:
        if HAS_DROPOUT:
            column_keys = _keys_of_columns(mine)[:, None]
        k = tl.load(key + offsets, mask=is_mine[:, None], other=0.0)
        v = tl.load(value + offsets, mask=is_mine[:, None], other=0.0)
        dk = tl.zeros([BLOCK, SIZE], tl.float32)
        dv = tl.zeros([BLOCK, SIZE], tl.float32)
        for start in range(0, length, BLOCK):
            rows = start + tl.arange(0, BLOCK)
            is_row = rows < length
            row_offsets = rows[:, None] * num_heads * SIZE + head_offsets
            q = tl.load(query + rows[:, None] * stride + head_offsets, mask=is_row[:, None], other=0.0)
            g = tl.load(gradient + row_offsets, mask=is_row[:, None], other=0.0)
            o = tl.load(output + row_offsets, mask=is_row[:, None], other=0.0)
            # inf makes the probabilities of rows beyond the feature 0.
            log_sum = tl.load(log_sums + rows, mask=is_row, other=float("inf"))
            delta = tl.sum(g.to(tl.float32) * o.to(tl.float32), 1) * keep_share
            weights = tl.exp2(tl.dot(k, tl.trans(q)) * scale_log2 - log_sum[None, :])
            d_weights = tl.dot(v, tl.trans(g))
            used = weights
            if HAS_DROPOUT:
                kept = _kept(_keys_of_rows(step_seed, head, begin + rows)[None, :], column_keys, threshold)
                used = tl.where(kept, weights, 0.0)
                d_weights = tl.where(kept, d_weights, 0.0)
            dv += tl.dot(used.to(g.dtype), g)
            d_scores = weights * (d_weights - delta[None, :])
            dk += tl.dot(d_scores.to(q.dtype), q)
        dk = dk * (scale / keep_share)
        tl.store(key_gradient + offsets, dk.to(key_gradient.dtype.element_ty), mask=is_mine[:, None])
        dv = dv / keep_share
        tl.store(value_gradient + offsets, dv.to(value_gradient.dtype.element_ty), mask=is_mine[:, None])
    else:
        q = tl.load(query + offsets, mask=is_mine[:, None], other=0.0)
        g = tl.load(gradient + output_offsets, mask=is_mine[:, None], other=0.0)
        o = tl.load(output + output_offsets, mask=is_mine[:, None], other=0.0)
        log_sum = tl.load(log_sums + mine, mask=is_mine, other=float("inf"))
        delta = tl.sum(g.to(tl.float32) * o.to(tl.float32), 1) * keep_share
        dq = tl.zeros([BLOCK, SIZE], tl.float32)
        if HAS_DROPOUT:
            row_keys = _keys_of_rows(step_seed, head, begin + mine)[:, None]
        for start in range(0, length, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            is_column = columns < length
            column_offsets = columns[:, None] * stride + head_offsets
            k = tl.load(key + column_offsets, mask=is_column[:, None], other=0.0)
            v = tl.load(value + column_offsets, mask=is_column[:, None], other=0.0)
            weights = tl.exp2(tl.dot(q, tl.trans(k)) * scale_log2 - log_sum[:, None])
            d_weights = tl.dot(g, tl.trans(v))
            if HAS_DROPOUT:
                kept = _kept(row_keys, _keys_of_columns(columns)[None, :], threshold)
                d_weights = tl.where(kept, d_weights, 0.0)
            d_scores = weights * (d_weights - delta[:, None])
            dq += tl.dot(d_scores.to(k.dtype), k)
        dq = dq * (scale / keep_share)
        tl.store(query_gradient + offsets, dq.to(query_gradient.dtype.element_ty), mask=is_mine[:, None])
