from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from db.ingest.update import ingest
from tests.support.journals import (
    START,
    attempt_line,
    end_line,
    journal_path,
    numbered,
    setup_line,
    step_line,
    write_run,
)
from tests.support.rows import of_runs, the_run


def test_ingest_of_a_finished_run_gives_its_rows_and_summary(engine: Engine, runs: Path) -> None:
    write_run(runs, "a")
    report = ingest(engine, runs)
    assert report.problems == []
    run = the_run(engine, "a")
    assert (run.status, run.provenance, run.num_attempts) == ("finished", "measured", 1)
    assert (run.recipe, run.model, run.dataset, run.parallel) == ("demo", "tiny", "demo", "ddp")
    assert run.precision == "fp32", "the one in use, not the one asked for"
    assert (run.step, run.num_steps, run.num_epochs, run.global_batch_size) == (5, 14, 2.0, 16)
    assert (run.world_size, run.num_nodes, run.device_type, run.device_name) == (2, 1, "cpu", "Xeon")
    assert (run.num_train_features, run.num_parameters) == (100, 5_000_000_000)
    assert (run.wall_clock_s, run.train_time_s, run.eval_time_s) == (50.0, 40.0, 2.0)
    assert (run.em, run.f1, run.final_loss, run.peak_memory_bytes) == (60.0, 70.0, 0.4, 2**34)
    assert (run.created_at, run.ended_at, run.last_seen_at) == (START + 1, START + 9, START + 9)


def test_wall_clock_over_attempts_begins_with_the_first_process(engine: Engine, runs: Path) -> None:
    first = attempt_line("a", started_at=START - 48)
    journal_path(runs, "a").write_bytes(numbered([first, end_line(3, status="preempted")]))
    journal_path(runs, "a", 2).write_bytes(numbered([attempt_line("a", 2), end_line(9)], start=START + 1000))
    ingest(engine, runs)
    assert the_run(engine, "a").wall_clock_s == pytest.approx(1050)


def test_failed_attempt_before_setup_keeps_what_is_known(engine: Engine, runs: Path) -> None:
    journal_path(runs, "a").write_bytes(numbered([attempt_line("a"), setup_line(), step_line(1)]))
    journal_path(runs, "a", 2).write_bytes(
        numbered([attempt_line("a", 2), end_line(0, status="failed", reason="no disk", final_loss=None)])
    )
    ingest(engine, runs)
    run = the_run(engine, "a")
    assert (run.status, run.num_train_features, run.num_steps) == ("failed", 100, 14)


def test_config_digest_is_equal_for_repeats_only(engine: Engine, runs: Path) -> None:
    config = attempt_line("x")["config"]
    lines = {
        "a": attempt_line("a"),
        "repeat": attempt_line("repeat", config=config | {"seed": 2, "name": "n", "resume": "none"}, name="n"),
        "batch": attempt_line("batch", config=config | {"global_batch_size": 32}),
        "world": attempt_line("world", world_size=4),
        "device": attempt_line("device", host={"device_name": "T4"}),
        "imported": attempt_line("imported", provenance="imported"),
    }
    for run_id, line in lines.items():
        journal_path(runs, run_id).write_bytes(numbered([line]))
    for run_id, first in (("restarted", config), ("sharded-first", config | {"parallel": "fsdp"})):
        journal_path(runs, run_id).write_bytes(numbered([attempt_line(run_id, config=first)]))
        journal_path(runs, run_id, 2).write_bytes(numbered([attempt_line(run_id, 2)]))
    ingest(engine, runs)
    digests = {run_id: the_run(engine, run_id).config_digest for run_id in (*lines, "restarted", "sharded-first")}
    assert digests["a"] == digests.pop("repeat") == digests.pop("restarted")
    assert len(set(digests.values())) == 6


def test_config_of_wrong_types_gives_empty_columns(engine: Engine, runs: Path) -> None:
    config = {"recipe": 5, "parallel": "x" * 17, "epochs": "two", "global_batch_size": 1.5, "model": ["m"]}
    lines = [attempt_line("a", config=config), setup_line(dataset={"num_train_features": "many"}, model={})]
    journal_path(runs, "a").write_bytes(numbered(lines))
    assert ingest(engine, runs).problems == []
    run = the_run(engine, "a")
    assert (run.recipe, run.parallel, run.num_epochs, run.global_batch_size) == (None, None, None, None)
    assert (run.model, run.num_train_features) == (None, None)
    assert run.config == config


def test_annotations_name_tag_and_note_a_run(engine: Engine, runs: Path) -> None:
    journal_path(runs, "a").write_bytes(numbered([attempt_line("a", name="first")]))
    path = runs / "a" / "annotations.jsonl"
    lines: list[dict[str, Any]] = [
        {"kind": "name", "value": "better"},
        {"kind": "tag", "value": "x"},
        {"kind": "tag", "value": "y"},
        {"kind": "tag", "value": "x"},
        {"kind": "note", "value": "slow disk"},
    ]
    path.write_bytes(numbered(lines))
    ingest(engine, runs)
    run = the_run(engine, "a")
    assert (run.name, run.tags, run.note) == ("better", ["x", "y"], "slow disk")
    more: list[dict[str, Any]] = [
        {"kind": "untag", "value": "x"},
        {"kind": "colour", "value": "red"},
        {"kind": "tag", "value": 5},
    ]
    path.write_bytes(path.read_bytes() + numbered([*more, {"kind": "note", "value": ""}], first=6))
    problems = of_runs(ingest(engine, runs))
    assert len(problems) == 2
    run = the_run(engine, "a")
    assert (run.name, run.tags, run.note) == ("better", ["y"], None)


def test_annotations_may_come_before_the_run(engine: Engine, runs: Path) -> None:
    (runs / "a").mkdir()
    (runs / "a" / "annotations.jsonl").write_bytes(numbered([{"kind": "tag", "value": "x"}]))
    ingest(engine, runs)
    write_run(runs, "a")
    ingest(engine, runs)
    assert the_run(engine, "a").tags == ["x"]
