"""Summaries of an attempt's newest steps."""

from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import Engine

from db.ingest.step_summaries import SUMMARY_STEPS
from db.ingest.update import ingest
from tests.support.journals import attempt_line, end_line, journal_path, numbered, setup_line, step_line
from tests.support.rows import every_row, rebuilt, the_attempt, the_run


def test_summary_is_of_the_steps_that_are_no_warmup(engine: Engine, runs: Path) -> None:
    steps = [step_line(step, max_rank_tokens=1100 + step, mean_rank_tokens=1000.5 + step) for step in range(1, 23)]
    journal_path(runs, "a").write_bytes(numbered([attempt_line("a"), setup_line(), *steps]))
    ingest(engine, runs)
    counted = steps[2:]
    times = [step["step_time_s"] for step in counted]
    attempt = the_attempt(engine, "a")
    assert attempt.num_timed_steps == 20
    assert (attempt.step_time_p50_s, attempt.step_time_p95_s) == pytest.approx(tuple(np.quantile(times, [0.5, 0.95])))
    assert attempt.data_share == pytest.approx(0.01 * 20 / sum(times))
    assert attempt.padding_factor == pytest.approx(3072 * 20 / sum(step["num_tokens"] for step in counted))
    fullest, mean = (sum(step[name] for step in counted) for name in ("max_rank_tokens", "mean_rank_tokens"))
    assert attempt.token_imbalance == pytest.approx(fullest / mean)


def test_values_without_steps_stay_unknown(engine: Engine, runs: Path) -> None:
    steps = [step_line(step, data_time_s=None, num_padded_tokens=None) for step in (3, 4)]
    journal_path(runs, "a").write_bytes(numbered([attempt_line("a"), setup_line(), *steps]))
    journal_path(runs, "b").write_bytes(numbered([attempt_line("b"), setup_line(), step_line(1)]))
    ingest(engine, runs)
    attempt = the_attempt(engine, "a")
    assert (attempt.data_share, attempt.padding_factor, attempt.token_imbalance) == (None, None, None)
    assert attempt.num_timed_steps == 2
    assert the_attempt(engine, "b").num_timed_steps is None, "a warm-up step only"


def test_summary_covers_the_newest_steps(engine: Engine, runs: Path, tmp_path: Path) -> None:
    times = [2.0] * 400 + [1.0] * SUMMARY_STEPS
    steps = [step_line(number, step_time_s=time_s) for number, time_s in enumerate(times, 3)]
    lines = numbered([attempt_line("a"), setup_line(), *steps])
    path = journal_path(runs, "a")
    for end in (len(lines) // 3, 2 * len(lines) // 3, len(lines)):
        path.write_bytes(lines[:end])
        ingest(engine, runs)
    attempt = the_attempt(engine, "a")
    assert (attempt.num_timed_steps, attempt.step_time_p95_s) == (SUMMARY_STEPS, 1.0)
    assert every_row(engine) == rebuilt(runs, tmp_path)


def test_reserved_memory_is_the_highest_of_steps_and_attempts(engine: Engine, runs: Path) -> None:
    lines = [attempt_line("a"), setup_line(), step_line(1, peak_reserved_bytes=5), step_line(2, peak_reserved_bytes=9)]
    journal_path(runs, "a").write_bytes(numbered(lines))
    later = [
        attempt_line("a", 2),
        setup_line(),
        step_line(3, peak_reserved_bytes=2),
        end_line(3, peak_reserved_bytes=7),
    ]
    journal_path(runs, "a", 2).write_bytes(numbered(later))
    ingest(engine, runs)
    assert [the_attempt(engine, "a", number).peak_reserved_bytes for number in (1, 2)] == [9, 7]
    assert the_run(engine, "a").peak_reserved_bytes == 9


def test_run_counts_the_lines_of_all_its_files(engine: Engine, runs: Path, tmp_path: Path) -> None:
    journal_path(runs, "a").write_bytes(numbered([attempt_line("a"), setup_line(), step_line(1)]))
    ingest(engine, runs)
    assert the_run(engine, "a").num_lines == 3
    journal_path(runs, "a", 1, 1).write_bytes(numbered([attempt_line("a", node_rank=1)]))
    (runs / "a" / "annotations.jsonl").write_bytes(numbered([{"kind": "tag", "value": "x"}]))
    ingest(engine, runs)
    assert the_run(engine, "a").num_lines == 5
    assert every_row(engine) == rebuilt(runs, tmp_path)
