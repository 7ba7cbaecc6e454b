"""The first and the last words of a run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elasticqa.config.batch_plan import batch_plan
from elasticqa.config.train_config import TrainConfig
from elasticqa.distributed.topology import Topology
from elasticqa.run.attempt import Attempt
from elasticqa.run.journal import FeatureLog
from elasticqa.training.console import closing, opening
from tests.support.training import EVALUATION


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    return Attempt(
        config=TrainConfig(),
        plan=batch_plan(TrainConfig(), 100, 1),
        directory=tmp_path / "RUN",
        number=2,
        started_at=0.0,
        is_main=True,
        journal=None,
        feature_log=FeatureLog(tmp_path / "RUN", 2, 0),
    )


def setup(**dataset: Any) -> dict[str, Any]:
    return {
        "dataset": {
            "name": "squad",
            "num_train_features": 88_524,
            "num_eval_examples": 10_570,
            "num_skipped_examples": 0,
            **dataset,
        },
        "model": {"name": "bert", "num_parameters": 108_893_186},
        "num_steps": 7378,
        "start_step": 500,
        "precision": "bf16",
        "attention": "packed",
    }


def test_opening_names_run_world_model_and_data(attempt: Attempt) -> None:
    text = opening(TrainConfig(recipe="squad", parallel="fsdp"), Topology.from_env({}), setup(), attempt)
    for part in (
        "run RUN, attempt 2: recipe squad, fsdp on 1 process(es), 1 node(s)",
        "bf16, packed attention",
        "model bert: 108,893,186 parameters",
        "data squad: 88,524 training features, 10,570 questions",
        "steps 500 to 7378, 24 features each",
    ):
        assert part in text
    assert "skipped" not in text


def test_opening_says_what_was_skipped(attempt: Attempt) -> None:
    text = opening(TrainConfig(), Topology.from_env({}), setup(num_skipped_examples=1234), attempt)
    assert "skipped 1,234 training questions" in text
    assert "--strict" in text


def end(status: str, **changes: Any) -> dict[str, Any]:
    return {
        "status": status,
        "reason": "trained",
        "wall_clock_s": 61.04,
        "train_time_s": 50.0,
        "final_loss": 0.98765,
        **changes,
    }


EVALUATIONS = [replace(EVALUATION, step=step, em=em, f1=80.0) for step, em in ((0, 1.5), (7378, 81.277))]


def test_closing_of_a_finished_run_names_its_scores_and_its_model(attempt: Attempt) -> None:
    text = closing(attempt, end("finished"), EVALUATIONS, None)
    for part in (
        "run RUN finished: trained",
        "61.0 s (steps 50.0 s)",
        "0.9877",
        "EM 1.50  F1 80.00",
        "EM 81.28  F1 80.00",
        str(attempt.directory / "model"),
        "uvicorn dashboard.app:app",
    ):
        assert part in text
    assert "database" not in text


def test_closing_of_a_stopped_run_names_no_model_and_says_how_to_resume(attempt: Attempt) -> None:
    text = closing(attempt, end("preempted", final_loss=None), [], None)
    assert "the same command again" in text
    assert str(attempt.directory / "model") not in text
    assert "loss" not in text


def test_closing_says_that_the_database_is_behind(attempt: Attempt) -> None:
    assert "is not up to date: no route; run elasticqa ingest" in closing(attempt, end("finished"), [], "no route")
