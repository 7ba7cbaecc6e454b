"""The modules of a model that get fused forward functions; the kernels are tested on a GPU (tests/gpu)."""

import pytest
import torch

from elasticqa.models.fused_layers import fuse_layers
from elasticqa.models.question_answering import PACKABLE
from tests.support.models import tiny


@pytest.mark.parametrize("is_sharded", [False, True])
@pytest.mark.parametrize("model_type", sorted(PACKABLE))
def test_fused_model_keeps_its_weights_and_replaces_four_forwards_per_layer(model_type: str, is_sharded: bool) -> None:
    model = tiny(model_type, "packed")
    weights = {name: weight.data_ptr() for name, weight in model.named_parameters()}
    fuse_layers(model, torch.float32, is_sharded=is_sharded)
    assert {name: weight.data_ptr() for name, weight in model.named_parameters()} == weights
    replaced = [name.rsplit("layer.", 1)[1] for name, module in model.named_modules() if "forward" in vars(module)]
    parts = ("attention.self", "attention.output", "intermediate", "output")
    assert sorted(replaced) == sorted(f"{layer}.{part}" for layer in range(2) for part in parts)
