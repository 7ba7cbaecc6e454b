"""Options and content that may change when a run resumes, and those that may not."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elasticqa.config.environment import RUN_ID_VARIABLE
from elasticqa.config.train_config import CHANGEABLE_FIELDS, CHANGEABLE_FIELDS_OF_NAMED_RUN
from elasticqa.errors import ConfigError
from elasticqa.run.journal_reader import first_attempt_line
from elasticqa.training.resume import changed_since, choose_run, with_recorded_batch
from tests.support.begun_runs import CONFIG, SETUP, chosen, make_run


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("dataset", r"training data \(SHA-256\) was 'aaaa', is 'bbbb'"),
        ("model", r"model \(SHA-256\) was 'mmmm', is 'bbbb'"),
    ],
)
def test_other_content_of_data_or_model_is_another_run(kind: str, message: str, tmp_path: Path) -> None:
    make_run(tmp_path, "A", SETUP)
    same, other = {"dataset": "aaaa", "model": "mmmm"}, {"dataset": "aaaa", "model": "mmmm", kind: "bbbb"}
    assert choose_run(CONFIG, tmp_path, {}, same).directory.name == "A"
    assert choose_run(CONFIG, tmp_path, {}, other).is_new
    for asked, environ in ((replace(CONFIG, resume="A"), {}), (CONFIG, {RUN_ID_VARIABLE: "A"})):
        with pytest.raises(ConfigError, match=message):
            choose_run(asked, tmp_path, environ, other)


def test_unknown_content_is_not_compared(tmp_path: Path) -> None:
    make_run(tmp_path, "A", {**SETUP, "model": {"name": "/models/small"}})
    assert choose_run(CONFIG, tmp_path, {}, {"dataset": "aaaa", "model": "bbbb"}).directory.name == "A"
    make_run(tmp_path, "A", SETUP, attempt=2)
    assert choose_run(CONFIG, tmp_path, {}, {"dataset": "aaaa", "model": "bbbb"}).is_new


def test_start_without_a_run_resumes_the_options_of_the_newest_attempt(tmp_path: Path) -> None:
    make_run(tmp_path, "A", SETUP)
    make_run(tmp_path, "A", SETUP, attempt=2, config=replace(CONFIG, parallel="fsdp").to_dict())
    assert chosen(tmp_path, parallel="fsdp") == ("A", False)
    assert chosen(tmp_path)[1]


def test_global_batch_of_the_first_start_stays_with_another_micro_batch(tmp_path: Path) -> None:
    asked = replace(CONFIG, global_batch_size=None, micro_batch_size=4)
    make_run(tmp_path, "A", config=asked.with_global_batch_size(2).to_dict(), world_size=2)
    choice: Any = {"global_batch_size": None, "micro_batch_size": 2}
    assert chosen(tmp_path, resume="A", **choice) == ("A", False)
    assert (
        with_recorded_batch(first_attempt_line(tmp_path / "A"), replace(asked, micro_batch_size=2)).global_batch_size
        == 8
    )
    assert chosen(tmp_path, **choice)[1]
    make_run(tmp_path, "B", config=replace(asked, global_batch_size=24).to_dict(), world_size=2)
    with pytest.raises(ConfigError, match="global_batch_size was 24, is 4"):
        chosen(tmp_path, resume="B", **choice)


@pytest.mark.parametrize("field", sorted(CHANGEABLE_FIELDS_OF_NAMED_RUN - CHANGEABLE_FIELDS))
def test_only_a_named_run_resumes_with_other_performance_options(field: str, tmp_path: Path) -> None:
    other: Any = {
        "recipe": "squad",
        "parallel": "fsdp",
        "precision": "fp32",
        "attention": "sdpa",
        "activation_checkpointing": True,
        "micro_batch_size": 3,
    }[field]
    make_run(tmp_path, "A")
    assert chosen(tmp_path, resume="A", **{field: other}) == ("A", False)
    assert chosen(tmp_path, run_id="A", **{field: other}) == ("A", False)
    assert chosen(tmp_path, **{field: other})[1]


def test_harmless_changes_are_found_against_the_newest_attempt(tmp_path: Path) -> None:
    directory = make_run(tmp_path, "A")
    make_run(tmp_path, "A", SETUP, attempt=2, config=replace(CONFIG, keep_checkpoints=5).to_dict())
    make_run(tmp_path, "A", attempt=3)  # died before its setup line
    assert changed_since(directory, 1, CONFIG) == {}
    assert changed_since(directory, 2, replace(CONFIG, resume="A")) == {}
    assert changed_since(directory, 4, CONFIG) == {"keep_checkpoints": (5, 2)}
