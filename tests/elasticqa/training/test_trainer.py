"""When the loop evaluates, saves and stops."""

import gc
import signal
from pathlib import Path

import pytest
import torch

from elasticqa.checkpoint.manifest import checkpoint_directories, read_manifest
from elasticqa.checkpoint.retention import noted_best
from elasticqa.distributed.topology import Topology
from elasticqa.training.step_metrics import WARMUP_STEPS, NonFiniteLossError
from elasticqa.training.trainer import Trainer
from tests.support.ranks import run_on_ranks
from tests.support.train_steps import FEATURES
from tests.support.trainers import evaluation, lines, request, trainer
from tests.support.training import fed, journal


def test_run_evaluates_and_saves_when_due_and_at_the_end(tmp_path: Path) -> None:
    made = trainer(tmp_path, checkpoint_every_steps=4, eval_every_steps=3)
    made.train()
    found = lines(tmp_path, made)
    assert [line["step"] for line in found["step"]] == list(range(1, 10))
    assert [line["step"] for line in found["evaluation"]] == [0, 3, 6, 9]
    assert [(line["step"], line["reason"]) for line in found["checkpoint"]] == [
        (3, "evaluation"),
        (4, "interval"),
        (6, "evaluation"),
        (8, "interval"),
        (9, "final"),
    ]
    assert found["checkpoint"][1]["path"] == "checkpoints/step-00000004"
    assert noted_best(tmp_path / "checkpoints") == (tmp_path / "checkpoints" / "step-00000003", 47.0)
    assert (made.progress.step, made.stopped_by, made.progress.best_f1) == (9, None, 50.0)
    assert made.train_step.model.training
    losses = [line["loss"] for line in found["step"]]
    assert sum(losses[6:]) < sum(losses[:3]) - 0.5
    assert list(made.progress.last_losses) == pytest.approx(losses[6:])


def test_step_lines_count_what_was_fed(tmp_path: Path) -> None:
    made = trainer(tmp_path, epochs=2)
    made.train()
    found = lines(tmp_path, made)["step"]
    fed_ids = fed(tmp_path)
    assert [line["samples_seen"] for line in found] == [4, 8, 11, 15, 19, 22]
    assert [line["epoch"] for line in found] == [0, 0, 0, 1, 1, 1]
    for line in found:
        ids = fed_ids[line["step"]]
        assert line["num_features"] == len(ids)
        assert line["num_tokens"] == int(FEATURES.lengths[ids].sum())
        assert line["num_padded_tokens"] == 384 * len(ids)
        assert 0 <= line["data_time_s"] <= line["step_time_s"]
        assert line["is_warmup"] == (line["step"] <= WARMUP_STEPS)
    assert made.progress.train_time_s == pytest.approx(sum(line["step_time_s"] for line in found))


def test_garbage_collector_skips_older_objects_during_the_loop(tmp_path: Path) -> None:
    made = trainer(tmp_path, eval_every_steps=3)
    seen = []
    made.evaluate = lambda _model, step: seen.append(len(gc.get_objects())) or evaluation(step)  # type: ignore[func-returns-value]
    made.train()
    before, *during = seen
    assert before > 100_000
    assert max(during) < before / 5
    assert len(gc.get_objects()) > 0.9 * before


def test_signal_ends_the_run_with_a_checkpoint_after_the_next_step(tmp_path: Path) -> None:
    made = trainer(tmp_path)
    made.train_step.model.register_forward_pre_hook(lambda *_: request(made, 2))
    made.train()
    # It came during step 3, after the ranks had agreed on that step.
    assert (made.progress.step, made.stopped_by) == (4, signal.SIGUSR1)
    found = lines(tmp_path, made)
    assert [(line["step"], line["reason"]) for line in found["checkpoint"]] == [(4, "signal")]
    assert [line["step"] for line in found["evaluation"]] == [0]


def stop_on_the_last_rank(topology: Topology, directory: Path) -> tuple[int, str | None]:
    made = trainer(directory, topology)
    if topology.rank == topology.world_size - 1:
        made.train_step.model.register_forward_pre_hook(lambda *_: request(made, 4))
    made.train()
    return made.progress.step, None if made.stopped_by is None else made.stopped_by.name


@pytest.mark.slow
def test_ranks_stop_at_the_same_step_when_one_is_asked(tmp_path: Path) -> None:
    main, *others = run_on_ranks(3, stop_on_the_last_rank, tmp_path)
    assert {step for step, _ in (main, *others)} == {6}
    assert others[-1][1] == "SIGUSR1"
    assert main[1] is not None
    assert [path.name for path in checkpoint_directories(tmp_path / "checkpoints")] == ["step-00000006"]


def spoil(made: Trainer, at: int) -> None:
    """Make the weights of a parameter NaN before the step numbered ``at`` from 0."""
    if made.progress.step == at:
        with torch.no_grad():
            next(made.train_step.model.parameters()).fill_(float("nan"))


def train_spoiled(topology: Topology, directory: Path) -> tuple[int, list[int], str]:
    made = trainer(directory, topology, checkpoint_every_steps=1)
    made.train_step.model.register_forward_pre_hook(lambda *_: spoil(made, 4) if topology.rank == 0 else None)
    try:
        made.train()
    except NonFiniteLossError as error:
        made.recorder.flush()
        return error.step, sorted(error.feature_ids), str(error)
    return made.progress.step, [], "trained"


@pytest.mark.slow
def test_loss_that_is_not_finite_is_raised_on_every_rank_and_no_checkpoint_holds_it(tmp_path: Path) -> None:
    ranks = run_on_ranks(2, train_spoiled, tmp_path)
    fed_ids = fed(tmp_path)
    assert len(fed_ids[5]) == 4
    for step, feature_ids, message in ranks:
        assert step == 5
        assert feature_ids == fed_ids[5]
        assert "at step 5 is not finite: its update was skipped and no checkpoint holds it; features" in message
        assert "--learning-rate" in message
    found = journal(tmp_path)
    assert found["step"][-1]["loss"] is None
    assert found["checkpoint"][-1]["step"] == 4
    assert checkpoint_directories(tmp_path / "checkpoints")[0].name == "step-00000004"


def test_progress_of_a_checkpoint_restores_another_trainer(tmp_path: Path) -> None:
    made = trainer(tmp_path / "first", max_steps=5)
    made.train()
    (path,) = checkpoint_directories(tmp_path / "first" / "checkpoints")
    manifest = read_manifest(path, verify=True)
    assert manifest.progress["samples_seen"] == 19
    assert manifest.config == made.config.to_dict()
    other = trainer(tmp_path / "second", max_steps=5)
    other.progress.load_state_dict(manifest.progress)
    wall_clock_s = manifest.progress["wall_clock_s"]
    assert other.progress.state_dict() | {"wall_clock_s": wall_clock_s} == manifest.progress
    assert other.progress.state_dict()["wall_clock_s"] >= wall_clock_s > 0
    assert other.progress.step == 5
    assert other.progress.train_time_s == made.progress.train_time_s
    assert other.progress.last_losses == made.progress.last_losses


def test_run_resumed_at_its_last_step_only_evaluates(tmp_path: Path) -> None:
    made = trainer(tmp_path)
    made.progress.step = made.progress.plan.num_steps
    before = [parameter.clone() for parameter in made.train_step.model.parameters()]
    made.train()
    assert "step" not in lines(tmp_path, made)
    assert [line["step"] for line in lines(tmp_path, made)["evaluation"]] == [9]
    for parameter, value in zip(made.train_step.model.parameters(), before, strict=True):
        torch.testing.assert_close(parameter, value, rtol=0, atol=0)
