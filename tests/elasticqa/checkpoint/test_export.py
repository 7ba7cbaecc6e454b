"""The exported model is what was trained, for transformers itself."""

import resource
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

from elasticqa.checkpoint.export import save_pretrained
from elasticqa.config.train_config import Parallel, TrainConfig
from elasticqa.distributed.topology import Topology
from elasticqa.errors import CheckpointError
from elasticqa.models.parallelize import parallelize
from elasticqa.models.question_answering import QuestionAnswerer, load_model
from tests.support.ranks import run_on_ranks

ALONE = Topology.from_env({})


def export(topology: Topology, source: Path, target: Path, parallel: Parallel, *, has_checkpoints: bool = False) -> str:
    """Add 1 to each weight of a wrapped model and export it; return what was raised."""
    config = TrainConfig(model=str(source), activation_checkpointing=has_checkpoints, max_length=160)
    bare, spec = load_model(source, config)
    model = parallelize(QuestionAnswerer(bare, spec), parallel, topology, "fp32")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    try:
        save_pretrained(model, bare, AutoTokenizer.from_pretrained(source), target, topology)
    except CheckpointError as error:
        return str(error)
    return "exported"


def weights(path: Path) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = AutoModelForQuestionAnswering.from_pretrained(path).state_dict()
    return state


def check(source: Path, target: Path) -> None:
    before, after = weights(source), weights(target)
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        torch.testing.assert_close(after[name], tensor + 1 if tensor.is_floating_point() else tensor)


@pytest.mark.slow
@pytest.mark.parametrize(("parallel", "world_size"), [("ddp", 2), ("fsdp", 2), ("fsdp", 3)])
def test_transformers_loads_the_trained_weights(
    parallel: Parallel, world_size: int, tiny_model: Path, tmp_path: Path
) -> None:
    target = tmp_path / "model"
    assert run_on_ranks(world_size, export, tiny_model, target, parallel) == ["exported"] * world_size
    check(tiny_model, target)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_activation_checkpointing_leaves_no_trace_in_the_export(tiny_model: Path, tmp_path: Path) -> None:
    assert export(ALONE, tiny_model, tmp_path / "model", "none", has_checkpoints=True) == "exported"
    check(tiny_model, tmp_path / "model")
    layers = AutoModelForQuestionAnswering.from_pretrained(tmp_path / "model").bert.encoder.layer
    assert not any("forward" in vars(layer) for layer in layers)


def test_tokenizer_and_former_export_are_replaced(tiny_model: Path, tmp_path: Path) -> None:
    target = tmp_path / "model"
    target.mkdir()
    (target / "old").write_text("", encoding="utf-8")
    (tmp_path / ".model.partial").mkdir()
    assert export(ALONE, tiny_model, target, "none") == "exported"
    assert not (target / "old").exists()
    text = "How long is the Oder?"
    assert AutoTokenizer.from_pretrained(target)(text) == AutoTokenizer.from_pretrained(tiny_model)(text)


def export_without_room(topology: Topology, source: Path, target: Path) -> str:
    if topology.is_main:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    return export(topology, source, target, "ddp")


@pytest.mark.slow
def test_export_without_room_fails_on_every_rank_and_keeps_the_former_one(tiny_model: Path, tmp_path: Path) -> None:
    target = tmp_path / "model"
    export(ALONE, tiny_model, target, "none")
    for problem in run_on_ranks(2, export_without_room, tiny_model, target):
        assert f"model {target} could not be written" in problem
        assert "\n" not in problem
    check(tiny_model, target)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
