"""Code of the benchmarks: padded batches, tables, and the parts of a run's time."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from benchmarks.quality.recipe_time import account
from benchmarks.support.setup import MAX_LENGTH, Data, facts
from benchmarks.tables.training import memory_table, quality_table, training_table
from benchmarks.tables.update_readme import NO_RESULTS, between_marks, tables
from benchmarks.training.padded_dataset import PaddedDataset
from benchmarks.training.scaling import cases_of
from elasticqa.data.micro_batch import pack
from elasticqa.data.squad.cache import FeatureRequest, load_or_build
from elasticqa.data.squad.features import Features, Windowing
from tests.support.paths import REPOSITORY

FACTS = {"date": "2026-01-02", "card": "a card", "torch": "2.0", "command": "python -m benchmarks.x"}


@pytest.fixture(scope="module")
def features(tiny_squad: Path, minilm: Path, tmp_path_factory: pytest.TempPathFactory) -> Features:
    request = FeatureRequest(tiny_squad / "train.json", for_training=True, windowing=Windowing(160, 32))
    return load_or_build(request, AutoTokenizer.from_pretrained(minilm), tmp_path_factory.mktemp("features")).features


def training_row(variant: str, rates: list[float], batch: int = 24, world_size: int = 1) -> dict[str, Any]:
    return FACTS | {
        "variant": variant,
        "model": "bert-base",
        "global_batch_size": batch,
        "world_size": world_size,
        "features_per_s": rates,
        "steps_a_repeat": 10,
        "peak_memory_bytes": 3 * 2**30,
        "peak_reserved_bytes": 4 * 2**30,
    }


def test_readme_has_the_tables_of_the_results() -> None:
    _, inside, _ = between_marks((REPOSITORY / "benchmarks" / "README.md").read_text(encoding="utf-8"))
    assert inside == tables((REPOSITORY / "benchmarks" / "results").glob("*.json"))


def test_padded_batch_has_the_tokens_of_a_packed_batch(features: Features) -> None:
    indices = np.array([3, 0, 7])
    packed = pack(features, indices)
    batch = PaddedDataset(features, is_padded=False).__getitems__(indices.tolist())
    mask = batch["attention_mask"].bool()
    assert mask.sum(1).tolist() == features.lengths[indices].tolist()
    assert batch["input_ids"][mask].equal(packed.input_ids)
    assert batch["token_type_ids"][mask].equal(packed.token_type_ids)
    assert batch["start_positions"].equal(packed.start_positions)
    assert batch["end_positions"].equal(packed.end_positions)
    assert not batch["input_ids"][~mask].any()
    assert batch["input_ids"].shape[1] % 8 == 0


def test_padded_features_have_the_full_length_and_follow_the_order(features: Features) -> None:
    order = np.arange(len(features))[::-1]
    rows = PaddedDataset(features, is_padded=True, order=order)
    row = rows[0]
    last = features.input_ids[features.offsets[-2] :]
    assert row["input_ids"].shape == (MAX_LENGTH,)
    assert row["input_ids"][: len(last)].tolist() == last.tolist()
    assert len(rows) == len(features)


def test_scaling_measures_each_trainer_alone_at_both_batches() -> None:
    data = Data(Path("a"), Path("b"), Path("c"))
    cases = cases_of(data, "tiny", ["elasticqa_ddp", "hf_ddp"], world_size=2, weak=24, strong=96)
    assert [(case.variant, case.world_size, case.global_batch_size) for case in cases] == [
        ("elasticqa", 1, 24),
        ("hf_bf16", 1, 24),
        ("elasticqa_ddp", 2, 48),
        ("hf_ddp", 2, 48),
        ("elasticqa", 1, 96),
        ("hf_bf16", 1, 96),
        ("elasticqa_ddp", 2, 96),
        ("hf_ddp", 2, 96),
    ]


def test_training_table_has_medians_and_ratios() -> None:
    table = training_table(
        [
            training_row("hf_bf16", [500.0, 400.0, 600.0]),
            training_row("elasticqa", [3000.0, 2900.0, 3100.0]),
            training_row("elasticqa_ddp", [5700.0], batch=48, world_size=2),
        ]
    )
    lines = table.splitlines()[2:]
    assert lines[0].startswith(
        "| `elasticqa` | bert-base | 1 | 24 | 3,000 (2,900 to 3,100) | 6.00x `hf_bf16` | 3.0 | 4.0 |"
    )
    assert "1.00x `hf_bf16`" in lines[1]
    assert "1.90x one GPU, weak" in lines[2]


def test_strong_scaling_is_the_ratio_at_the_same_batch() -> None:
    table = training_table(
        [
            training_row("elasticqa", [1000.0], batch=96),
            training_row("elasticqa_fsdp", [1500.0], batch=96, world_size=2),
        ]
    )
    assert "1.50x one GPU, strong" in table


def test_quality_table_has_means_and_standard_deviations() -> None:
    rows = [
        {"variant": "elasticqa", "model": "m", "seed": seed, "em": em, "f1": em + 10.0}
        for seed, em in ((1, 70.0), (2, 72.0), (3, 71.0))
    ]
    assert "**71.00** (s 1.00) | **81.00** (s 1.00)" in quality_table(rows)


def test_memory_table_has_the_share_of_the_parameters() -> None:
    row = {
        "variant": "elasticqa_fsdp",
        "model": "bert-large",
        "world_size": 2,
        "activation_checkpointing": True,
        "reference_batch": 16,
        "peak_memory_bytes": 2**30,
        "peak_reserved_bytes": 2**31,
        "largest_batch": 96,
        "largest_batch_peak_memory_bytes": 70 * 2**30,
        "local_parameter_bytes": 51 * 2**20,
        "parameter_bytes": 100 * 2**20,
    }
    assert "| yes | 16: 1.0, 2.0 | 96: 70.0 | 51.0 (0.510) |" in memory_table([row])


def test_results_of_different_machines_have_different_tables(tmp_path: Path) -> None:
    first = [training_row("elasticqa", [100.0]), {"page": "/runs", "p50_ms": 1.0}]
    second = [training_row("elasticqa", [200.0]) | {"card": "another card"}]
    for name, rows in (("a.json", first), ("b.json", second)):
        (tmp_path / name).write_text(json.dumps(rows), encoding="utf-8")
    text = tables(tmp_path.glob("*.json"))
    assert text.count("### Training") == 2
    assert "another card" in text
    assert "/runs" not in text
    assert tables([]) == NO_RESULTS


def test_parts_of_a_run_add_up_to_the_time_of_its_process(tmp_path: Path) -> None:
    steps = [
        {"kind": "step", "step": number, "step_time_s": seconds, "is_warmup": number == 1, "loss": 1.0}
        for number, seconds in enumerate((5.0, 1.0, 1.0, 1.0), start=1)
    ]
    used = dict.fromkeys(("is_captured", "is_compiled", "is_fused"), True)
    lines = [
        {
            "kind": "setup",
            "phases": {"import": 3.0, "features": 2.0},
            "precision": "bf16",
            "attention": "flash",
            **used,
        },
        *steps,
        {"kind": "checkpoint", "blocked_time_s": 0.25},
        {"kind": "evaluation", "eval_time_s": 2.5, "em": 50.0, "f1": 60.0},
        {
            "kind": "end",
            "wall_clock_s": 18.0,
            "phases": {"first_pass": 1.0, "export": 0.5},
            "final_loss": 1.0,
            "peak_memory_bytes": None,
        },
    ]
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / "attempt-0001-node-00000.jsonl").write_text("\n".join(map(json.dumps, lines)))
    found = account(tmp_path, 20.0)
    parts = found["parts_s"]
    assert sum(parts.values()) == pytest.approx(found["process_s"])
    assert (parts["steps"], parts["capture"], parts["evaluate"], parts["save"]) == (4.0, 4.0, 2.5, 0.25)
    assert (parts["between"], parts["ingest and exit"]) == (pytest.approx(0.75), 2.0)
    assert (found["em"], found["f1"]) == (50.0, 60.0)


def test_command_of_a_measurement_under_torchrun_is_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert facts("card")["command"].startswith("python -m ")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert facts("card")["command"].startswith("torchrun --standalone --nproc-per-node=2 -m ")
