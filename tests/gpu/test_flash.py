"""Attention on packed features equals SDPA on padded ones, within the precision."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from elasticqa.data.micro_batch import MicroBatch, pack
from elasticqa.models.attention import PACKED, PACKED_SDPA, packed_attention
from elasticqa.models.fused_layers import fuse_layers
from elasticqa.models.kernels.attention import has_flash_attention
from elasticqa.models.question_answering import PACKABLE, QuestionAnswerer, feature_losses
from tests.support.models import random_features, tiny

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

LENGTHS = (1, 384, 2, 170, 33, 64, 3, 293, 128, 129)
DEVICE = torch.device("cuda", 0)


def batch_of(lengths: tuple[int, ...]) -> MicroBatch:
    return pack(random_features(lengths), np.arange(len(lengths))).to(DEVICE)


def model_of(model_type: str, implementation: str) -> QuestionAnswerer:
    """Return a model of two layers with head size 64, no dropout, and equal weights for every attention."""
    attention = "padded" if implementation == "sdpa" else "packed"
    sizes = {"hidden_size": 256, "intermediate_size": 512, "max_position_embeddings": 400}
    return tiny(model_type, attention, implementation, **sizes).to(DEVICE)


def results(model: QuestionAnswerer, batch: MicroBatch, dtype: torch.dtype) -> list[Tensor]:
    """Return the logits and the scaled gradients of all weights, in fp32."""
    with torch.autocast("cuda", dtype=dtype, enabled=dtype != torch.float32):
        logits = model(batch)
    # Without a scale the smallest fp16 gradients underflow.
    scale = 1 if dtype == torch.float32 else 1024
    (feature_losses(logits, batch).sum() * scale).backward()
    return [logits.detach(), *(p.grad / scale for p in model.parameters() if p.grad is not None)]


def distance(values: list[Tensor], reference: list[Tensor]) -> float:
    """Return the largest ‖value - reference‖ / ‖reference‖ over tensors whose reference is not almost 0."""
    return max(
        float((value - other).norm() / other.norm())
        for value, other in zip(values, reference, strict=True)
        if float(other.norm()) > 1e-3
    )


@pytest.mark.parametrize("model_type", sorted(PACKABLE))
def test_packed_fp32_equals_padded(model_type: str) -> None:
    batch = batch_of(LENGTHS)
    packed = results(model_of(model_type, PACKED), batch, torch.float32)
    padded = results(model_of(model_type, "sdpa"), batch, torch.float32)
    for value, reference in zip(packed, padded, strict=True):
        torch.testing.assert_close(value, reference, atol=1e-5 * max(1.0, float(reference.abs().max())), rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("implementation", [PACKED, PACKED_SDPA])
@pytest.mark.parametrize("lengths", [LENGTHS, (384,), (1,), (7,) * 40])
def test_packed_is_as_close_to_fp32_as_padded(
    dtype: torch.dtype, implementation: str, lengths: tuple[int, ...], record_property: Callable[[str, object], None]
) -> None:
    batch = batch_of(lengths)
    reference = results(model_of("bert", "sdpa"), batch, torch.float32)
    padded = distance(results(model_of("bert", "sdpa"), batch, dtype), reference)
    packed = distance(results(model_of("bert", implementation), batch, dtype), reference)
    record_property("distance_to_fp32", {"packed": packed, "padded": padded})
    assert packed < 1.5 * padded + 1e-3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_fused_layers_are_as_close_to_fp32_as_padded(
    dtype: torch.dtype, record_property: Callable[[str, object], None]
) -> None:
    batch = batch_of(LENGTHS)
    reference = results(model_of("bert", "sdpa"), batch, torch.float32)
    padded = distance(results(model_of("bert", "sdpa"), batch, dtype), reference)
    model = model_of("bert", PACKED)
    fuse_layers(model, dtype, is_sharded=False)
    fused = distance(results(model, batch, dtype), reference)
    record_property("distance_to_fp32", {"fused": fused, "padded": padded})
    # The fused model also rounds values between layers.
    assert fused < 2 * padded + 1e-3


def attention_of_ones(num_tokens: int, dropout: float, seed: int) -> Tensor:
    """Return attention with equal probabilities over values of 1: the sum of the probabilities after dropout."""
    batch = batch_of((num_tokens,))
    zeros = torch.zeros(1, 12, num_tokens, 64, device=DEVICE, dtype=torch.bfloat16)
    torch.manual_seed(seed)
    output, _ = packed_attention(
        nn.Identity(), zeros, zeros, torch.ones_like(zeros), None, dropout=dropout, packing=batch
    )
    return output.float()


def test_flash_attention_needs_a_gpu_and_half_precision() -> None:
    assert has_flash_attention(DEVICE, torch.bfloat16) == (torch.cuda.get_device_capability(DEVICE) >= (8, 0))
    assert not has_flash_attention(DEVICE, torch.float32)
    assert not has_flash_attention(torch.device("cpu"), torch.bfloat16)


def test_attention_dropout_has_the_expected_mean_and_deviation() -> None:
    num_tokens, probability = 128, 0.1
    kept = torch.stack([attention_of_ones(num_tokens, probability, seed)[..., 0] for seed in range(20)])
    deviation = math.sqrt(probability / (1 - probability) / num_tokens)
    assert abs(float(kept.mean()) - 1) < 5 * deviation / math.sqrt(kept.numel()) + 2e-3
    assert float(kept.std()) == pytest.approx(deviation, rel=0.1)


def test_attention_dropout_depends_on_the_seed() -> None:
    assert torch.equal(attention_of_ones(64, 0.1, 1), attention_of_ones(64, 0.1, 1))
    assert not torch.equal(attention_of_ones(64, 0.1, 1), attention_of_ones(64, 0.1, 2))
    assert torch.equal(attention_of_ones(64, 0.0, 1), torch.ones(1, 64, 12, 64, device=DEVICE))
