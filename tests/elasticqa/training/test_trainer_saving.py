"""The loop after a failed save, and after an evaluation that an attempt missed."""

import signal
from concurrent.futures import wait
from pathlib import Path

import pytest
from torch import nn

from elasticqa.checkpoint.checkpointer import Checkpointer
from elasticqa.checkpoint.manifest import checkpoint_directories, read_manifest
from elasticqa.checkpoint.retention import noted_best
from elasticqa.distributed.topology import Topology
from elasticqa.errors import CheckpointError
from elasticqa.run.metrics import Evaluation
from elasticqa.training.app_state import app_state_of
from elasticqa.training.trainer import Trainer
from tests.support.ranks import run_on_ranks
from tests.support.trainers import ALONE, evaluation, lines, request, trainer


def test_checkpoint_that_cannot_be_written_ends_the_run_at_once(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("", encoding="utf-8")
    made = trainer(tmp_path, checkpoint_every_steps=4)
    made.train_step.model.register_forward_pre_hook(lambda *_: until_saved(made, 4))
    with pytest.raises(CheckpointError, match="could not be written"):
        made.train()
    # Known during step 5 at the latest, agreed on in the step after; the next save is due at 8.
    assert made.progress.step in {5, 6}


def until_saved(made: Trainer, at: int) -> None:
    """Wait for the pending save during the step numbered ``at`` from 0."""
    if made.progress.step == at:
        assert made.checkpointer._pending is not None
        wait([made.checkpointer._pending.outcome])


def fail_to_save(topology: Topology, directory: Path) -> tuple[int, str]:
    made = trainer(directory, topology, epochs=400, checkpoint_every_steps=600)
    if topology.rank == 1:
        # Known to this rank only: the others must stop at the same step.
        made.train_step.model.register_forward_pre_hook(lambda *_: until_saved(made, 600))
    else:
        made.checkpointer.__class__ = Unaware
    try:
        made.train()
    except CheckpointError as error:
        return made.progress.step, str(error)
    return made.progress.step, "trained"


class Unaware(Checkpointer):
    """A checkpointer that has not noticed the failure yet."""

    has_failed = False


@pytest.mark.slow
def test_ranks_stop_at_the_same_step_after_a_failed_save(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("", encoding="utf-8")
    outcomes = run_on_ranks(2, fail_to_save, tmp_path)
    assert {step for step, _ in outcomes} in ({601}, {602})
    assert all("could not be written" in message for _, message in outcomes)


def test_next_attempt_repeats_an_evaluation_that_failed(tmp_path: Path) -> None:
    first = trainer(tmp_path, eval_every_steps=3)

    def fail(_model: nn.Module, step: int) -> Evaluation:
        if step == 3:
            raise IndexError("span 7 is not in the context")
        return evaluation(step)

    first.evaluate = fail
    with pytest.raises(IndexError):
        first.train()
    first.checkpointer.close()
    (path,) = checkpoint_directories(tmp_path / "checkpoints")
    manifest = read_manifest(path, verify=True)
    assert (manifest.step, manifest.progress["best_f1"], manifest.progress["evaluated_step"]) == (3, 50.0, 0)
    for evaluated in ([3, 6, 9], [6, 9]):
        again = trainer(tmp_path / f"after-{len(evaluated)}", eval_every_steps=3)
        again.checkpointer = Checkpointer(
            tmp_path / "checkpoints", ALONE, app_state_of(again.train_step, again.progress), keep=9
        )
        again.progress.load_state_dict(read_manifest(path, verify=True).progress)
        again.train()
        again.checkpointer.close()
        assert [line["step"] for line in lines(tmp_path / f"after-{len(evaluated)}", again)["evaluation"]] == evaluated
    assert noted_best(tmp_path / "checkpoints") == (path, 47.0)
    assert read_manifest(path, verify=True).progress["evaluated_step"] == 3


def test_stop_before_an_evaluation_leaves_it_to_the_next_attempt(tmp_path: Path) -> None:
    made = trainer(tmp_path, eval_every_steps=4, eval_before=False)
    made.train_step.model.register_forward_pre_hook(lambda *_: request(made, 2))
    made.train()
    assert (made.progress.step, made.stopped_by) == (4, signal.SIGUSR1)
    assert "evaluation" not in lines(tmp_path, made)
    again = trainer(tmp_path / "again", eval_every_steps=4)
    (path,) = checkpoint_directories(tmp_path / "checkpoints")
    again.progress.load_state_dict(read_manifest(path, verify=True).progress)
    again.train()
    assert [line["step"] for line in lines(tmp_path / "again", again)["evaluation"]] == [4, 8, 9]
