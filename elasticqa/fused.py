"""Parts of an encoder's layers that run on kernels of ours, in place of slower equals: weights and names stay."""

from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elasticqa.batching import MicroBatch
from elasticqa.model import encoder_layers
from elasticqa.packed_kernel import attention
from elasticqa.residual_norm import residual_norm


def fuse(model: nn.Module) -> None:
    """Exchange how self-attention and the ends of both halves of each encoder layer are computed, in place.

    Between layers values are then of the autocast type, where LayerNorm under autocast gives fp32.

    Args:
        model: of a packable type, before or after wrapping, on a device that has the kernel of `packed_kernel`.
    """
    for layer in encoder_layers(model):
        for module in layer.modules():
            if _has(module, "query", "key", "value", "attention_head_size"):
                module.forward = MethodType(_attend, module)
            elif _has(module, "dense", "dropout", "LayerNorm"):
                module.forward = MethodType(_finish, module)


def _has(module: nn.Module, *names: str) -> bool:
    return all(hasattr(module, name) for name in names)


def _attend(module: Any, hidden_states: Tensor, *_: Any, packing: MicroBatch, **__: Any) -> tuple[Tensor, None]:
    """Do what a self-attention of transformers does, with one product for query, key and value."""
    parts = (module.query, module.key, module.value)
    weight, bias = (torch.cat([getattr(part, name) for part in parts]) for name in ("weight", "bias"))
    size = module.attention_head_size
    projected = F.linear(hidden_states, weight, bias).view(-1, 3, module.num_attention_heads, size)
    query, key, value = projected.unbind(1)
    dropout = module.dropout.p if module.training else 0.0
    output = attention(query, key, value, packing.cu_lengths, packing.max_length, dropout, size**-0.5)
    return output.reshape(hidden_states.shape), None


def _finish(module: Any, hidden_states: Tensor, input_tensor: Tensor) -> Tensor:
    """Do what the output of attention or of the feed-forward network does: project, drop, add, normalize."""
    values = F.linear(hidden_states, module.dense.weight)
    dropout = module.dropout.p if module.training else 0.0
    return residual_norm(values, module.dense.bias, input_tensor, module.LayerNorm, dropout)
