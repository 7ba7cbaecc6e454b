"""The hyper-parameters of recipes, and a short run of each on small data."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from elasticqa.config.batch_plan import batch_plan
from elasticqa.config.command_line import parse_config
from elasticqa.config.recipes import RECIPES, recipe
from elasticqa.errors import ConfigError
from elasticqa.profiling.step_profiler import ACTIVE_STEPS, WAIT_STEPS, WARMUP_STEPS, profile_schedule
from tests.support import training
from tests.support.paths import REPOSITORY

SQUAD_FEATURES = 88_524

STATED: dict[str, dict[str, Any]] = {
    "squad": {
        "model": "bert-base-uncased",
        "dataset": "rajpurkar/squad",
        "epochs": 2,
        "global_batch_size": 24,
        "max_length": 384,
        "doc_stride": 128,
        "learning_rate": 4e-5,
        "weight_decay": 0.01,
        "warmup_ratio": 0.0,
        "max_train_features": None,
        "max_eval_examples": None,
    },
    "baseline-10k": {
        "model": "bert-base-uncased",
        "dataset": "rajpurkar/squad",
        "parallel": "none",
        "max_train_features": 10_000,
        "max_eval_examples": 500,
        "epochs": 4,
        "global_batch_size": 4,
        "learning_rate": 3e-5,
        "weight_decay": 0.01,
    },
}


@pytest.mark.parametrize("name", STATED)
def test_recipe_has_what_its_authors_state(name: str) -> None:
    config = recipe(name).to_dict()
    assert {field: config[field] for field in STATED[name]} == STATED[name]


def test_distributed_recipe_differs_from_its_baseline_in_parallelism_only() -> None:
    baseline, distributed = recipe("baseline-10k"), recipe("distributed-10k")
    assert baseline.differences(distributed.to_dict()).keys() == {"recipe", "parallel", "global_batch_size"}
    assert [distributed.with_global_batch_size(world_size).global_batch_size for world_size in (1, 2, 4)] == [4, 8, 16]


def test_profile_recipe_has_as_many_steps_without_as_with_the_profiler() -> None:
    squad, profiled = recipe("squad"), recipe("profile")
    assert squad.differences(profiled.to_dict()).keys() == {"recipe", "max_steps", "max_eval_examples"}
    assert (squad.profile, profiled.profile) == (False, True)
    plan = batch_plan(profiled, SQUAD_FEATURES, 1)
    schedule = profile_schedule(plan.num_steps)
    assert (schedule.wait, schedule.warmup, schedule.active) == (WAIT_STEPS, WARMUP_STEPS, ACTIVE_STEPS)
    assert plan.num_steps == 2 * schedule.num_steps


@pytest.mark.parametrize(
    "path", sorted((REPOSITORY / "db" / "reported").glob("*/journal/*.jsonl")), ids=lambda p: p.parts[-3]
)
def test_recipe_agrees_with_the_run_that_its_authors_report(path: Path) -> None:
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    recorded, world_size = lines[0]["config"], lines[0]["world_size"]
    config = recipe(recorded["recipe"]).with_global_batch_size(world_size)
    chosen = config.to_dict()
    stated = set(recorded) - {"dataset", "parallel"}
    assert {field: chosen[field] for field in stated} == {field: recorded[field] for field in stated}
    assert chosen["dataset"].endswith(recorded["dataset"])
    (setup,) = (line for line in lines if line["kind"] == "setup")
    plan = batch_plan(config, setup["dataset"]["num_train_features"], world_size)
    records = {line["kind"]: line.get("data", line) for line in lines}
    if setup["num_steps"] is not None:
        # Authors also report steps per second and seconds, whose product is the number of steps.
        steps = records["event"]["steps_per_s"] * records["end"]["train_time_s"]
        assert plan.num_steps == setup["num_steps"] == pytest.approx(steps, rel=1e-4)


def test_unknown_recipe_is_refused_with_the_names() -> None:
    with pytest.raises(ConfigError, match="recipe='unheard-of' is not known: use one of baseline-10k, demo, "):
        recipe("unheard-of")


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_is_chosen_on_the_command_line_and_recorded_by_its_name(name: str) -> None:
    config = parse_config([f"--recipe={name}"])
    assert config == recipe(name)
    assert config.recipe == name


def small(name: str, model: Path, data: Path, *more: str) -> list[str]:
    """Return flags that run a recipe on 53 features and a tiny model."""
    return [
        f"--recipe={name}", f"--model={model}", f"--dataset={data}", "--max-length=160", "--doc-stride=32",
        "--log-every-s=0", *more,
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "more", "num_steps"),
    [
        ("demo", (), 12),
        ("squad", (), 6),
        ("baseline-10k", ("--epochs=1",), 14),
        ("distributed-10k", ("--epochs=1",), 14),
        ("profile", ("--epochs=8",), 24),
    ],
)
def test_recipe_trains_to_the_last_step(
    name: str, more: tuple[str, ...], num_steps: int, tiny_model: Path, tiny_squad: Path, tmp_path: Path
) -> None:
    done = training.train(tmp_path, *small(name, tiny_model, tiny_squad, *more))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = training.journal(training.only_run(tmp_path))
    assert len(lines["step"]) == num_steps
    assert lines["end"][0]["status"] == "finished"
    assert lines["attempt"][0]["config"]["recipe"] == name
    assert lines["evaluation"][-1]["num_examples"] == 20
    assert len(lines["profile"]) == (name == "profile")


@pytest.mark.slow
def test_global_batch_of_a_distributed_run_is_that_of_its_first_start(
    tiny_model: Path, tiny_squad: Path, tmp_path: Path
) -> None:
    arguments = small("distributed-10k", tiny_model, tiny_squad, "--epochs=20")
    with training.started(tmp_path, training.command(*arguments, nproc=2), step=3) as process:
        process.send_signal(signal.SIGTERM)
    directory = training.only_run(tmp_path)
    first = training.journal(directory)
    assert first["end"][0]["status"] == "preempted"

    done = training.train(tmp_path, *arguments, nproc=3)
    assert done.returncode == 0, done.stdout + done.stderr
    assert training.only_run(tmp_path) == directory
    second = training.journal(directory, 2)
    assert second["setup"][0]["start_step"] == first["end"][0]["step"]
    for lines in (first, second):
        assert lines["attempt"][0]["config"]["global_batch_size"] == 8
        assert lines["setup"][0]["num_steps"] == 140
        assert {line["num_features"] for line in lines["step"]} <= {8, 53 % 8}


@pytest.mark.slow
def test_world_larger_than_the_global_batch_of_the_run_is_refused_without_an_attempt(
    tiny_model: Path, tiny_squad: Path, tmp_path: Path
) -> None:
    arguments = small("distributed-10k", tiny_model, tiny_squad, "--micro-batch-size=1", "--max-steps=1")
    assert training.train(tmp_path, *arguments).returncode == 0
    directory = training.only_run(tmp_path)
    (journal,) = (directory / "journal").glob("*.jsonl")
    # Without its last line, as if killed: a finished run cannot resume at any world size.
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:-1]))
    done = training.train(tmp_path, *arguments, f"--resume={directory}", nproc=2)
    assert done.returncode != 0
    assert "global_batch_size=1 cannot feed world_size=2" in done.stderr
    assert list((directory / "journal").glob("*.jsonl")) == [journal]
