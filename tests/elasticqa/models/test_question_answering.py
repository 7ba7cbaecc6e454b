"""A model gives equal results on packed and padded batches, for each feature."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoConfig

from elasticqa.config.train_config import TrainConfig
from elasticqa.data.micro_batch import NO_FEATURES, pack
from elasticqa.errors import ConfigError
from elasticqa.models.question_answering import PACKABLE, ModelSpec, feature_losses, load_model
from tests.support.models import LENGTHS, random_features, tiny


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
def test_loss_of_a_feature_does_not_depend_on_the_others_in_its_batch(attention: str) -> None:
    features = random_features()
    model = tiny("bert", attention)
    batch = pack(features, np.arange(len(LENGTHS)))
    together = feature_losses(model(batch), batch)
    for index in range(len(LENGTHS)):
        single = pack(features, np.array([index]))
        alone = feature_losses(model(single), single)
        torch.testing.assert_close(alone[0], together[index], atol=1e-5, rtol=1e-5)


def test_loss_equals_the_mean_of_two_cross_entropies() -> None:
    features = random_features((3, 2))
    batch = pack(features, np.array([0, 1]))
    logits = torch.randn(2, 5)
    for row, (begin, stop) in enumerate(((0, 3), (3, 5))):
        log_start, log_end = logits[:, begin:stop].log_softmax(1)
        expected = -(log_start[batch.start_positions[row]] + log_end[batch.end_positions[row]]) / 2
        torch.testing.assert_close(feature_losses(logits, batch)[row], expected)


def test_placeholder_has_a_finite_loss_and_no_weight() -> None:
    batch = pack(random_features(), NO_FEATURES)
    losses = feature_losses(tiny("bert", "packed")(batch), batch)
    assert torch.isfinite(losses).all()
    assert batch.weights.tolist() == [0.0]
    assert batch.fed_ids() == []


def test_model_type_that_cannot_be_packed_is_padded() -> None:
    config = AutoConfig.for_model("mpnet")
    assert not ModelSpec.of(config, "auto").is_packed


def test_missing_model_is_reported_in_one_line() -> None:
    with pytest.raises(ConfigError, match="cannot be loaded") as caught:
        load_model(Path("/nowhere"), TrainConfig())
    assert "\n" not in str(caught.value)
