"""Attention over packed features, registered in transformers' attention interface."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface, AttentionMaskInterface

from elasticqa.data.micro_batch import MicroBatch
from elasticqa.distributed.torch_internals import flash_attention
from elasticqa.models.kernels.attention import attention, has_flash_attention, has_triton_attention

PACKED = "elasticqa_packed"
PACKED_SDPA = "elasticqa_packed_sdpa"
"""Names of the functions below in transformers' registry."""


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
    uses_kernels: bool = True,
    **_: Any,
) -> tuple[Tensor, None]:
    """Return attention within each feature of a packed batch, (1, T, heads, head size).

    Uses our Triton kernel for short features if it supports device, dtype and head size; otherwise torch's flash
    attention; otherwise SDPA on padded rows. Query, key and value are (1, heads, T, head size); instead of a mask,
    ``packing`` has the boundaries of features.
    """
    size = query.shape[-1]
    flat = [x.squeeze(0).transpose(0, 1) for x in (query, key, value)]
    if uses_kernels and has_triton_attention(query.device, query.dtype, size):
        scale = size**-0.5 if scaling is None else scaling
        packed = torch.stack(flat, 1)
        return attention(packed, packing.cu_lengths, packing.max_length, dropout, scale)[None], None
    if uses_kernels and has_flash_attention(query.device, query.dtype):
        output = flash_attention(flat, packing.cu_lengths, packing.max_length, dropout=dropout, scaling=scaling)
        return output[None], None
    places, shape = packing.pad_index.flatten(), packing.pad_index.shape
    query, key, value = (x.index_select(0, places).unflatten(0, shape).transpose(1, 2) for x in flat)
    mask = packing.mask[:, None, None, :]
    output = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout, scale=scaling)
    return output.transpose(1, 2).flatten(0, 1).index_select(0, packing.unpad_index)[None], None


def packed_sdpa(*args: Any, **kwargs: Any) -> tuple[Tensor, None]:
    """Return the same as ``packed_attention`` on any device, computed by SDPA on padded rows."""
    return packed_attention(*args, **kwargs, uses_kernels=False)


for name, function in ((PACKED, packed_attention), (PACKED_SDPA, packed_sdpa)):
    AttentionInterface.register(name, function)
    # Create no mask: the packing separates features.
    AttentionMaskInterface.register(name, lambda *_args, **_kwargs: None)
