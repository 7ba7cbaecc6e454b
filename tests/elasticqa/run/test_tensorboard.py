from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2

from elasticqa.run.tensorboard import TensorBoardLog
from tests.support.training import EVALUATION, STEP


def read(folder: Path) -> EventAccumulator:
    events = EventAccumulator(str(folder))
    events.Reload()
    return events


def test_scalars_of_steps_and_evaluations_are_read_back(tmp_path: Path) -> None:
    log = TensorBoardLog(tmp_path)
    log.log_step(STEP)
    log.log_step(replace(STEP, step=2, loss=2.0, step_time_s=0.25))
    log.log_evaluation(EVALUATION)
    log.close()
    events = read(tmp_path)
    points: dict[str, Any] = {
        tag: [(event.step, pytest.approx(event.value)) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }
    assert points == {
        "train/loss": [(1, 2.5), (2, 2.0)],
        "train/grad_norm": [(1, 0.75), (2, 0.75)],
        "train/learning_rate": [(1, 3e-5), (2, 3e-5)],
        "train/step_time": [(1, 0.5), (2, 0.25)],
        "train/samples_per_s": [(1, 20.0), (2, 40.0)],
        "eval/em": [(5, 50.0)],
        "eval/f1": [(5, 62.345)],
    }


def test_hparams_have_total_time_and_final_loss(tmp_path: Path) -> None:
    log = TensorBoardLog(tmp_path)
    log.log_hparams({"seed": 1, "name": None, "precision": "bf16"}, total_time_s=12.5, final_loss=0.75)
    log.close()
    events = read(tmp_path)
    assert events.Scalars("hparam/total_time_s")[0].value == 12.5
    assert events.Scalars("hparam/final_loss")[0].value == 0.75
    content = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    start = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info
    assert start.hparams["seed"].number_value == 1
    assert start.hparams["name"].string_value == "None"
    assert start.hparams["precision"].string_value == "bf16"


def test_absent_final_loss_is_left_out_of_hparams(tmp_path: Path) -> None:
    log = TensorBoardLog(tmp_path)
    log.log_hparams({"seed": 1}, total_time_s=12.5, final_loss=None)
    log.close()
    assert read(tmp_path).Tags()["scalars"] == ["hparam/total_time_s"]
