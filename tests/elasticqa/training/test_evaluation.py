"""EM and F1 do not depend on how many ranks evaluate, and are those of the answers that are kept."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from elasticqa.config.train_config import TrainConfig
from elasticqa.data.micro_batch import MicroBatch
from elasticqa.data.task import load_task
from elasticqa.distributed.topology import Topology
from elasticqa.models.parallelize import parallelize
from elasticqa.models.question_answering import QuestionAnswerer, load_model
from elasticqa.training.evaluation import Evaluator
from tests.support.ranks import run_on_ranks


def evaluator(topology: Topology, home: Path, config: TrainConfig) -> Evaluator:
    task = load_task(config, home)
    assert task.dev is not None
    return Evaluator(
        features=task.dev,
        examples=task.dev_examples,
        topology=topology,
        precision="fp32",
        max_answer_length=config.max_answer_length,
        run_directory=home / "run",
        attempt=2,
    )


def evaluate(topology: Topology, home: Path, config: TrainConfig) -> tuple[Any, list[int]]:
    """Return the figures of an untrained model, and the number of features in each of its forward passes."""
    answerer = QuestionAnswerer(*load_model(config.model, config))
    passes: list[int] = []
    answerer.register_forward_pre_hook(lambda _, inputs: passes.append(len(inputs[0].fed_ids())))
    found = evaluator(topology, home, config)(parallelize(answerer, config.parallel, topology, "fp32"), 5)
    return found and (found.em, found.f1, found.num_examples, found.num_features, found.predictions), passes


def kept(home: Path) -> list[dict[str, Any]]:
    path = home / "run" / "predictions" / "attempt-0002-step-00000005-dev.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize(("parallel", "limit"), [("ddp", None), ("fsdp", 2)])
def test_any_number_of_ranks_gives_equal_figures_and_predictions(
    parallel: str, limit: int | None, tiny_model: Path, tiny_squad: Path, tmp_path: Path
) -> None:
    config = TrainConfig(
        model=str(tiny_model),
        dataset=str(tiny_squad),
        max_length=160,
        doc_stride=32,
        max_eval_examples=limit,
        parallel="fsdp" if parallel == "fsdp" else "ddp",
    )
    results = []
    for world_size in (1, 2, 3):
        home = tmp_path / str(world_size)
        (figures, passes), *others = run_on_ranks(world_size, evaluate, home, config)
        assert all(figures_there is None for figures_there, _ in others)
        everywhere = [passes, *(passes_there for _, passes_there in others)]
        assert len({len(one) for one in everywhere}) == 1
        assert sum(sum(one) for one in everywhere) == figures[3]
        lines = kept(home)
        assert len(lines) == figures[2] == (limit or 20)
        scores = [line.pop("score") for line in lines]
        results.append((figures, lines, scores))
    alone, *spread = results
    for figures, lines, scores in spread:
        assert (figures, lines) == alone[:2]
        assert scores == pytest.approx(alone[2], abs=1e-4)


class Oracle(nn.Module):
    """Knows the answers of features with an even id, and says nothing of the others."""

    def forward(self, batch: MicroBatch) -> Tensor:
        logits = torch.zeros(2, len(batch.input_ids))
        begins = batch.cu_lengths[:-1].long()
        # Position 0 says that the answer is not in this window.
        is_known = (batch.feature_ids % 2 == 0) & (batch.start_positions > 0)
        logits[0, (begins + batch.start_positions)[is_known]] = 9.0
        logits[1, (begins + batch.end_positions)[is_known]] = 9.0
        return logits


def test_figures_are_those_of_the_answers(tiny_model: Path, tiny_squad: Path, tmp_path: Path) -> None:
    config = TrainConfig(model=str(tiny_model), dataset=str(tiny_squad), max_length=160, doc_stride=32)
    one = evaluator(Topology.from_env({}), tmp_path, config)
    model = Oracle()
    found = one(model, 5)
    assert found is not None
    assert not model.training
    lines = kept(tmp_path)
    features = one.features
    known = {
        int(features.example_index[index]) for index in range(0, len(features), 2) if features.start_position[index] > 0
    }
    assert 5 < len(known) < 20
    for number, (line, example) in enumerate(zip(lines, one.examples, strict=True)):
        assert (line["id"], line["question"], line["context"]) == (example.id, example.question, example.context)
        assert line["answers"] == [answer.text for answer in example.answers]
        if line["start"] is not None:
            assert line["context"].startswith(line["prediction"], line["start"])
        if number in known:
            assert line["em"] == line["f1"] == 1
            assert line["score"] == 18.0
    assert sum(line["em"] for line in lines) < 20
    assert found.em == pytest.approx(100 * sum(line["em"] for line in lines) / 20)
    assert found.f1 == pytest.approx(100 * sum(line["f1"] for line in lines) / 20)
    assert (found.step, found.split, found.num_examples, found.num_features) == (5, "dev", 20, len(features))
