"""Records of a run on its main rank and on other ranks."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from elasticqa.config.batch_plan import BatchPlan
from elasticqa.config.train_config import TrainConfig
from elasticqa.run.journal import FeatureLog, Journal
from elasticqa.run.recorder import Recorder, progress_line
from tests.support.training import EVALUATION, STEP, fed, journal

PLAN = BatchPlan(num_train_features=100, global_batch_size=10, steps_per_epoch=10, num_steps=20)

MakeRecorder = Callable[..., Recorder]


@pytest.fixture
def recorder(tmp_path: Path) -> MakeRecorder:
    """Return a function that makes recorders with files in ``tmp_path``."""

    def make(*, is_main: bool = True, log_every_s: float = 1e9) -> Recorder:
        return Recorder(
            config=TrainConfig(log_every_s=log_every_s),
            plan=PLAN,
            journal=Journal(tmp_path, 1, 0),
            tensorboard=None,
            feature_log=FeatureLog(tmp_path, 1, 0),
            is_main=is_main,
        )

    return make


def test_main_rank_writes_every_kind_of_record(recorder: MakeRecorder, tmp_path: Path) -> None:
    main = recorder()
    main.log_step(STEP)
    main.log_evaluation(EVALUATION)
    main.log_event("resume", "resumed from x", step=4)
    main.write("checkpoint", {"step": 3})
    main.log_features(1, [4, 2])
    main.flush()
    lines = journal(tmp_path)
    for kind, fields in {
        "step": asdict(STEP),
        "evaluation": asdict(EVALUATION),
        "event": {"name": "resume", "message": "resumed from x", "data": {"step": 4}},
        "checkpoint": {"step": 3},
    }.items():
        (line,) = lines[kind]
        assert {name: line[name] for name in fields} == fields
    assert fed(tmp_path) == {1: [2, 4]}
    assert main.evaluations == [EVALUATION]


def test_other_ranks_only_log_their_features(
    recorder: MakeRecorder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = recorder(is_main=False)
    other.log_step(STEP)
    other.log_event("resume", "resumed")
    other.write("checkpoint", {"step": 3})
    other.print_line("hello")
    other.log_features(1, [4])
    other.flush()
    assert journal(tmp_path) == {}
    assert capsys.readouterr().out == ""
    assert fed(tmp_path) == {1: [4]}


def test_loss_that_is_not_finite_is_null_in_the_journal(recorder: MakeRecorder, tmp_path: Path) -> None:
    main = recorder()
    main.log_step(replace(STEP, loss=float("nan")))
    main.flush()
    assert journal(tmp_path)["step"][0]["loss"] is None
    assert "NaN" not in json.dumps(journal(tmp_path))


def test_progress_is_printed_at_the_first_and_the_last_step(
    recorder: MakeRecorder, capsys: pytest.CaptureFixture[str]
) -> None:
    main = recorder()
    for step in range(1, 21):
        main.log_step(replace(STEP, step=step, samples_seen=10 * step))
    printed = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in printed] == ["step 1/20", "step 20/20"]


def test_every_step_is_printed_if_the_interval_is_0(recorder: MakeRecorder, capsys: pytest.CaptureFixture[str]) -> None:
    main = recorder(log_every_s=0.0)
    for step in range(1, 4):
        main.log_step(replace(STEP, step=step))
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_evaluation_is_printed_with_its_metrics(recorder: MakeRecorder, capsys: pytest.CaptureFixture[str]) -> None:
    recorder().log_evaluation(EVALUATION)
    assert capsys.readouterr().out == "evaluation at step 5: EM 50.00  F1 62.34  (7 questions, 1.2 s)\n"


def test_progress_line_has_means_since_the_last_line_and_the_time_left() -> None:
    recent = [
        replace(STEP, step=4, samples_seen=40, loss=3.0, step_time_s=1.0),
        replace(STEP, step=5, samples_seen=50, loss=1.0, step_time_s=3.0),
    ]
    # 20 features in 4 s are 5/s; 150 of 200 are left.
    assert progress_line(recent, PLAN) == (
        "step 5/20  epoch 0.50  loss 2.0000  lr 3.00e-05  5.0 features/s  time left 0:30"
    )


def test_progress_line_without_elapsed_time_has_rate_0() -> None:
    assert "0.0 features/s  time left 0:00" in progress_line([replace(STEP, step_time_s=0.0)], PLAN)
