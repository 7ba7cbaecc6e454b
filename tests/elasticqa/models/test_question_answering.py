"""The packed model equals the padded one, feature by feature."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForQuestionAnswering

from elasticqa.config.train_config import TrainConfig
from elasticqa.data.micro_batch import NO_FEATURES, pack
from elasticqa.data.squad.features import Features
from elasticqa.errors import ConfigError
from elasticqa.models.attention import PACKED
from elasticqa.models.question_answering import PACKABLE, ModelSpec, QuestionAnswerer, feature_losses, load_model

LENGTHS = (1, 2, 7, 64, 33, 64, 3)


def random_features(lengths: tuple[int, ...] = LENGTHS, vocab_size: int = 90) -> Features:
    """Return features of the lengths with random tokens and positions."""
    random = np.random.default_rng(0)
    sizes = np.asarray(lengths)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    start = np.array([random.integers(size) for size in sizes], dtype=np.int32)
    return Features(
        input_ids=random.integers(5, vocab_size, offsets[-1]).astype(np.int32),
        char_offsets=np.zeros((offsets[-1], 2), dtype=np.int32),
        offsets=offsets,
        segment_start=(sizes // 2).astype(np.int32),
        context_start=(sizes // 2).astype(np.int32),
        context_end=sizes.astype(np.int32),
        start_position=start,
        end_position=np.array([random.integers(s, n) for s, n in zip(start, sizes, strict=True)], dtype=np.int32),
        example_index=np.arange(len(sizes), dtype=np.int32),
    )


def tiny(model_type: str, attention: str) -> QuestionAnswerer:
    """Return a two-layer model of the type; equal weights whatever the attention."""
    config = AutoConfig.for_model(
        model_type,
        vocab_size=100,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=80,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=1,
    )
    spec = ModelSpec.of(config, attention)
    torch.manual_seed(0)
    config._attn_implementation = PACKED if spec.is_packed else "sdpa"
    return QuestionAnswerer(AutoModelForQuestionAnswering.from_config(config), spec)


@pytest.mark.parametrize("model_type", sorted(PACKABLE))
def test_packed_logits_and_gradients_equal_padded_ones(model_type: str) -> None:
    features = random_features()
    batch = pack(features, np.arange(len(LENGTHS)))
    results = []
    for attention in ("packed", "padded"):
        model = tiny(model_type, attention)
        logits = model(batch)
        feature_losses(logits, batch).sum().backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        results.append((logits, gradients))
    (packed_logits, packed_gradients), (logits, gradients) = results
    torch.testing.assert_close(packed_logits, logits, atol=1e-5, rtol=1e-5)
    assert len(packed_gradients) == len(gradients) > 30
    for packed_gradient, gradient in zip(packed_gradients, gradients, strict=True):
        torch.testing.assert_close(packed_gradient, gradient, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("attention", ["packed", "padded"])
def test_feature_alone_equals_feature_in_company(attention: str) -> None:
    features = random_features()
    model = tiny("bert", attention)
    batch = pack(features, np.arange(len(LENGTHS)))
    together = feature_losses(model(batch), batch)
    for index in range(len(LENGTHS)):
        single = pack(features, np.array([index]))
        alone = feature_losses(model(single), single)
        torch.testing.assert_close(alone[0], together[index], atol=1e-5, rtol=1e-5)


def test_loss_equals_cross_entropy_by_hand() -> None:
    features = random_features((3, 2))
    batch = pack(features, np.array([0, 1]))
    logits = torch.randn(2, 5)
    for row, (begin, stop) in enumerate(((0, 3), (3, 5))):
        log_start, log_end = logits[:, begin:stop].log_softmax(1)
        expected = -(log_start[batch.start_positions[row]] + log_end[batch.end_positions[row]]) / 2
        torch.testing.assert_close(feature_losses(logits, batch)[row], expected)


def test_stand_in_gives_finite_loss_of_no_weight() -> None:
    batch = pack(random_features(), NO_FEATURES)
    losses = feature_losses(tiny("bert", "packed")(batch), batch)
    assert torch.isfinite(losses).all()
    assert batch.weights.tolist() == [0.0]
    assert batch.fed_ids() == []


def test_unpackable_model_trains_padded() -> None:
    config = AutoConfig.for_model("mpnet")
    assert not ModelSpec.of(config, "auto").is_packed


@pytest.mark.parametrize("path", [Path("/nowhere")])
def test_missing_model_is_one_line(path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be loaded") as caught:
        load_model(path, TrainConfig())
    assert "\n" not in str(caught.value)
