"""Every benchmark script runs on a CPU with minimal sizes; its numbers are not checked."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.tables.update_readme import tables
from tests.support.paths import REPOSITORY

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("benchmarks-cache")


@pytest.fixture
def script(tmp_path: Path, minilm: Path, cache: Path) -> Any:
    """Return a function that runs a script and returns its results and its output."""

    def run(module: str, *options: str) -> tuple[list[dict[str, Any]], str]:
        results = tmp_path / "results.json"
        common = [f"--tokenizer={minilm}", f"--cache={cache}", f"--results={results}", "--model=tiny"]
        done = subprocess.run(
            [sys.executable, "-m", f"benchmarks.{module}", *common, *options],
            cwd=REPOSITORY,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        assert "FAILED" not in done.stdout, done.stdout
        assert tables([results]).startswith("### ")
        return json.loads(results.read_text(encoding="utf-8")), done.stdout

    return run


def test_variants_take_turns_on_one_device(script: Any, tiny_squad: Path) -> None:
    names = ["elasticqa", "hf_bf16_grouped", "lightning_bf16"]
    rows, output = script(
        "training.train_speed", f"--squad={tiny_squad / 'train.json'}", "--batch-sizes=4", "--seconds=0", "--warm-up=1",
        "--repeats=2", "--ready-within=200", "--variants", *names,
    )  # fmt: skip
    measured = [row["variant"] for row in rows]
    left_out = [name for name in names if f"{name} 1 x 4: left out, " in output]
    assert measured + left_out == names
    assert all(len(row["features_per_s"]) == 2 for row in rows)


def test_ranks_of_a_variant_take_their_turn_together(script: Any, tiny_squad: Path) -> None:
    rows, _ = script(
        "training.scaling", f"--squad={tiny_squad / 'train.json'}", "--weak=4", "--strong=0", "--seconds=0",
        "--repeats=1", "--ready-within=200", "--variants", "elasticqa_ddp",
    )  # fmt: skip
    assert [(row["variant"], row["world_size"], row["global_batch_size"]) for row in rows] == [
        ("elasticqa", 1, 4),
        ("elasticqa_ddp", 2, 8),
    ]


def test_losses_of_both_trainers_agree(script: Any, tiny_squad: Path) -> None:
    rows, _ = script(
        "training.cpu_speed", f"--squad={tiny_squad / 'train.json'}", "--batch-size=4", "--repeats=1", "--seconds=0",
        "--variants", "elasticqa",
    )  # fmt: skip
    assert [row.get("what") for row in rows] == ["equality", None]
    assert len(rows[0]["losses"]) == 5
    assert rows[0]["largest_difference"] < 1e-4


def test_parts_of_a_step_are_measured(script: Any, tiny_squad: Path) -> None:
    (row,), output = script(
        "training.step_parts",
        f"--squad={tiny_squad / 'train.json'}",
        "--batch-size=4",
        "--steps=2",
        "--profiled-steps=4",
    )
    assert len(row["step_ms"]) == 3
    assert row["categories_ms"]["matmul"] > 0
    assert sum(kernel["ms"] for kernel in row["top"]) <= sum(row["categories_ms"].values())
    assert "ms a step" in output


def test_evaluation_is_timed(script: Any, tiny_squad: Path) -> None:
    (row,), _ = script(
        "training.evaluation_speed",
        f"--squad={tiny_squad / 'train.json'}",
        f"--dev={tiny_squad / 'dev.json'}",
        "--repeats=1",
    )
    assert row["num_examples"] == 20
    assert row["eval_time_s"][0] >= 0


def test_memory_finds_the_largest_allowed_batch(script: Any, tiny_squad: Path) -> None:
    rows, _ = script(
        "memory.bert_large",
        f"--squad={tiny_squad / 'train.json'}",
        "--gpus=1",
        "--reference=2",
        "--most=2",
        "--limit=280",
    )
    assert [(row["variant"], row["activation_checkpointing"]) for row in rows] == [
        ("elasticqa_ddp", False),
        ("elasticqa_fsdp", False),
        ("elasticqa_ddp", True),
        ("elasticqa_fsdp", True),
    ]
    assert {row["largest_batch"] for row in rows} == {2}
    assert {row["local_parameter_bytes"] / row["parameter_bytes"] for row in rows} == {1.0}


def test_memory_of_a_rank_alone(script: Any, tiny_squad: Path) -> None:
    rows, _ = script(
        "memory.bert_large",
        f"--squad={tiny_squad / 'train.json'}",
        "--gpus=4",
        "--alone",
        "--reference=2",
        "--most=2",
        "--limit=280",
    )
    assert {row["largest_batch"] for row in rows} == {2}
    shares = {row["variant"]: row["local_parameter_bytes"] / row["parameter_bytes"] for row in rows}
    assert shares["elasticqa_ddp"] == 1.0
    assert 0.25 <= shares["elasticqa_fsdp"] <= 1.05 / 4


def test_recipe_is_accounted_for(script: Any, tiny_squad: Path) -> None:
    (row,), _ = script(
        "quality.recipe_time", f"--dataset={tiny_squad}", "--times", "cold", "--max-steps=8", "--global-batch-size=4"
    )
    parts = row["parts_s"]
    assert sum(parts.values()) == pytest.approx(row["process_s"], abs=0.1)
    assert {"import", "features", "model", "first_pass", "steps", "evaluate", "save", "export"} <= parts.keys()
    # The recorded parts explain nearly all of the time.
    assert 0 <= parts["between"] < 0.2 * row["process_s"]


def test_quality_is_measured_for_both_trainers_and_can_be_imported(
    script: Any, tiny_squad: Path, tmp_path: Path
) -> None:
    rows, _ = script("quality.parity", f"--dataset={tiny_squad}", "--seeds=1", "--max-steps=2", "--cards", "", "")
    assert [row["variant"] for row in rows] == ["elasticqa", "hf_bf16"]
    assert [row["num_steps"] for row in rows] == [2, 2]
    kept = tmp_path / "kept"
    subprocess.run(["tar", "--one-top-level=kept", "-xf", "results-runs.tar"], cwd=tmp_path, check=True)
    done = subprocess.run(
        [sys.executable, "-m", "elasticqa.cli.main", "import", kept / "elasticqa-1.tar.gz", kept / "hf_bf16-1"],
        env={**os.environ, "ELASTICQA_HOME": str(tmp_path / "home")},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "home" / "runs").iterdir())) == 2


def test_time_that_a_save_blocks_is_measured(script: Any, tiny_squad: Path) -> None:
    (row,), output = script(
        "checkpoints.save_stall", f"--squad={tiny_squad / 'train.json'}", "--batch-size=4", "--saves=2", "--every=3",
        "--window=2", "--leave-out", "hash",
    )  # fmt: skip
    assert len(row["stalls_ms"]) == 3
    assert len(row["save_time_s"]) == 3
    assert 0 < row["stall_p50_ms"] <= row["stall_p95_ms"] <= row["stall_max_ms"]
    assert row["bytes"] > 0
    assert "blocked p50" in output


def test_checkpoint_resumes_at_every_world_size(script: Any, tiny_squad: Path) -> None:
    rows, output = script(
        "checkpoints.resize", f"--squad={tiny_squad / 'train.json'}", "--batch-size=4", "--steps=4", "--most-ranks=1"
    )
    assert [(row["saved_by"], row["restored_by"]) for row in rows] == [
        (f"{before} x 1", f"{after} x 1") for before in ("ddp", "fsdp") for after in ("ddp", "fsdp")
    ]
    assert all(row["largest_difference"] < 1e-4 and row["least_difference_unrestored"] > 0 for row in rows)
    assert all(len(row["losses_resumed"]) == 2 for row in rows)
    assert output.count("largest difference") == 4
