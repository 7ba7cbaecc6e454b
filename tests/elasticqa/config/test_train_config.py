"""Ranges of options, options that may change on resume, and the batch plan."""

import dataclasses
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticqa.config.batch_plan import BatchPlan, batch_plan
from elasticqa.config.train_config import TrainConfig
from elasticqa.errors import ConfigError


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"epochs": 0}, "epochs=0 is too small: at least 1; --epochs sets it"),
        ({"max_steps": 0}, "max_steps=0 is too small"),
        ({"global_batch_size": 0}, "global_batch_size=0 is too small: at least 1; --global-batch-size sets it"),
        ({"micro_batch_size": -1}, "micro_batch_size=-1 is too small"),
        ({"max_length": 15}, "max_length=15 is too small: at least 16"),
        ({"doc_stride": 0}, "doc_stride=0 is too small"),
        ({"learning_rate": -1e-9}, "learning_rate=-1e-09 is too small"),
        ({"learning_rate": math.nan}, "learning_rate=nan is not a finite number"),
        ({"weight_decay": math.inf}, "weight_decay=inf is not a finite number"),
        ({"max_grad_norm": 0.0}, "max_grad_norm=0.0 is too small"),
        ({"warmup_ratio": 1.1}, "warmup_ratio=1.1 is too large: at most 1.0; --warmup-ratio sets it"),
        ({"dropout": 1.0}, "dropout=1.0 is too large"),
        ({"dropout": -0.1}, "dropout=-0.1 is too small"),
        ({"seed": -1}, "seed=-1 is too small"),
        ({"seed": 2**63}, "is too large"),
        ({"keep_checkpoints": 0}, "keep_checkpoints=0 is too small"),
        ({"max_length": 64, "doc_stride": 64}, "doc_stride=64 must be smaller than max_length=64.*--doc-stride"),
    ],
)
def test_config_that_cannot_run_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        TrainConfig(**fields)
    assert "\n" not in str(caught.value)


def test_bounds_themselves_are_accepted() -> None:
    TrainConfig(max_length=16, doc_stride=15, warmup_ratio=1.0, dropout=0.0, seed=2**63 - 1, learning_rate=0.0)


def test_config_is_read_back_from_json_unchanged() -> None:
    config = TrainConfig(dropout=0.1, learning_rate=3e-5, name="ü", max_steps=None)
    assert TrainConfig(**json.loads(json.dumps(config.to_dict()))) == config
    assert config.differences(json.loads(json.dumps(config.to_dict()))) == {}


def test_differences_leave_out_fields_that_may_change() -> None:
    recorded = TrainConfig(seed=1, learning_rate=1e-5, name="old", log_every_s=1.0, keep_checkpoints=9)
    assert TrainConfig().differences(recorded.to_dict()) == {"learning_rate": (1e-5, 3e-5), "seed": (1, 42)}


def test_option_that_a_run_did_not_have_counts_as_its_default() -> None:
    recorded = TrainConfig().to_dict()
    del recorded["seed"]
    assert TrainConfig().differences(recorded) == {}
    assert TrainConfig(seed=1).differences(recorded) == {"seed": (42, 1)}


def test_every_field_has_a_default() -> None:
    assert all(field.default is not dataclasses.MISSING for field in dataclasses.fields(TrainConfig))


@given(st.integers(1, 200), st.integers(1, 30), st.integers(1, 4))
def test_plan_uses_every_feature_once_per_epoch(num_features: int, batch: int, epochs: int) -> None:
    plan = batch_plan(TrainConfig(global_batch_size=batch, epochs=epochs), num_features, 1)
    assert plan.num_steps == plan.steps_per_epoch * epochs
    assert plan.samples_seen(0) == 0
    assert plan.samples_seen(plan.num_steps) == num_features * epochs
    steps = [plan.samples_seen(step + 1) - plan.samples_seen(step) for step in range(plan.num_steps)]
    assert all(1 <= size <= batch for size in steps)
    assert plan.position(plan.num_steps) == (epochs, 0)


def test_max_steps_ends_a_run_within_an_epoch() -> None:
    plan = batch_plan(TrainConfig(global_batch_size=4, epochs=3, max_steps=4), 10, 1)
    assert plan == BatchPlan(num_train_features=10, global_batch_size=4, steps_per_epoch=3, num_steps=4)
    assert plan.samples_seen(4) == 14


def test_max_steps_beyond_the_epochs_changes_nothing() -> None:
    assert batch_plan(TrainConfig(global_batch_size=4, max_steps=99), 10, 1).num_steps == 3


def test_plan_does_not_depend_on_the_world_size() -> None:
    assert len({batch_plan(TrainConfig(global_batch_size=4), 10, world_size) for world_size in (1, 2, 3, 4)}) == 1


def test_unset_global_batch_follows_from_the_first_world_size() -> None:
    config = TrainConfig(global_batch_size=None, micro_batch_size=4)
    assert batch_plan(config, 100, 3).global_batch_size == 12
    assert config.with_global_batch_size(3).global_batch_size == 12
    assert TrainConfig(global_batch_size=5).with_global_batch_size(3).global_batch_size == 5


def test_world_larger_than_the_global_batch_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"global_batch_size=4 cannot feed world_size=5.*at most 4 ranks"):
        batch_plan(TrainConfig(global_batch_size=4), 10, 5)


def test_data_set_without_features_is_refused() -> None:
    with pytest.raises(ConfigError, match="dataset='demo' has 0 training features"):
        batch_plan(TrainConfig(), 0, 1)
