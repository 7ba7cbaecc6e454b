"""Attention over packed features, plugged into transformers' attention interface: the model itself is not changed."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface, AttentionMaskInterface

from elasticqa.data.micro_batch import MicroBatch
from elasticqa.models.kernels.attention import attention, has_kernel

PACKED = "elasticqa_packed"
PACKED_SDPA = "elasticqa_packed_sdpa"
"""Names under which transformers finds the functions below."""


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    packing: MicroBatch,
    **_: Any,
) -> tuple[Tensor, None]:
    """Return attention within each feature of a packed batch, (1, T, heads, head size).

    A kernel for short features computes it where device, data type and head size have one; else the flash kernel of
    torch; else SDPA on padded rows.

    Args:
        module: the layer that asks; not used.
        query: (1, heads, T, head size), as are ``key`` and ``value``.
        key: see query.
        value: see query.
        attention_mask: always None: the packing says what belongs together.
        dropout: of the attention probabilities, 0 in evaluation.
        scaling: factor of the scores.
        packing: where the features begin and end.
    """
    size = query.shape[-1]
    if has_kernel(query.device, query.dtype, size):
        packed = torch.stack([x.squeeze(0).transpose(0, 1) for x in (query, key, value)], 1)
        scale = size**-0.5 if scaling is None else scaling
        return attention(packed, packing.cu_lengths, packing.max_length, dropout, scale)[None], None
    if not has_flash(query.device, query.dtype):
        return packed_sdpa(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, packing=packing)
    query, key, value = (x.squeeze(0).transpose(0, 1) for x in (query, key, value))
    return _flash(query, key, value, packing, dropout, scaling).unsqueeze(0), None


def packed_sdpa(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    packing: MicroBatch,
    **_: Any,
) -> tuple[Tensor, None]:
    """Return what ``packed_attention`` does, on any device: only attention is computed on padded rows."""
    query, key, value = (x.squeeze(0).transpose(0, 1) for x in (query, key, value))
    return _padded_sdpa(query, key, value, packing, dropout, scaling).unsqueeze(0), None


def has_flash(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the flash kernel runs on the device with tensors of the type."""
    return (
        device.type == "cuda"
        and dtype in (torch.bfloat16, torch.float16)
        # torch.compile folds this call into a constant, unlike get_device_capability.
        and torch.cuda.get_device_properties(device).major >= 8
    )


def _flash(
    query: Tensor, key: Tensor, value: Tensor, packing: MicroBatch, dropout: float, scaling: float | None
) -> Tensor:
    # torch.nn.attention.varlen.varlen_attn has no dropout; the operator below it does.
    output: Tensor = torch.ops.aten._flash_attention_forward(
        query,
        key,
        value,
        packing.cu_lengths,
        packing.cu_lengths,
        packing.max_length,
        packing.max_length,
        dropout,
        False,
        False,
        scale=scaling,
    )[0]
    return output


def _padded_sdpa(
    query: Tensor, key: Tensor, value: Tensor, packing: MicroBatch, dropout: float, scaling: float | None
) -> Tensor:
    rows, longest = packing.pad_index.shape
    padded_query, padded_key, padded_value = (
        x.index_select(0, packing.pad_index.flatten()).unflatten(0, (rows, longest)).transpose(1, 2)
        for x in (query, key, value)
    )
    mask = packing.mask[:, None, None, :]
    output = F.scaled_dot_product_attention(
        padded_query, padded_key, padded_value, attn_mask=mask, dropout_p=dropout, scale=scaling
    )
    return output.transpose(1, 2).flatten(0, 1).index_select(0, packing.unpad_index)


for name, function in ((PACKED, packed_attention), (PACKED_SDPA, packed_sdpa)):
    AttentionInterface.register(name, function)
    # No mask is ever made: features are told apart by the packing.
    AttentionMaskInterface.register(name, lambda *_args, **_kwargs: None)
