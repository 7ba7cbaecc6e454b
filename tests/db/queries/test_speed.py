"""How a run's steps went."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from db import queries
from db.ingest.step_summaries import SUMMARY_STEPS
from db.ingest.update import ingest
from tests.support.dashboard_data import AttemptSpec, write_run
from tests.support.query_runs import NOW, PLAIN


def test_percentiles_waits_and_padding_are_those_of_the_counted_steps(session: Session) -> None:
    speed = queries.step_speed_of(session, PLAIN.run_id)
    counted = [step for step in queries.steps_of(session, PLAIN.run_id) if not step.is_warmup]
    times = [step.step_time_s for step in counted if step.step_time_s is not None]
    assert speed.num_steps == len(times) == 55
    assert (speed.step_time_p50_s, speed.step_time_p95_s) == pytest.approx(tuple(np.percentile(times, [50, 95])))
    assert speed.data_share == pytest.approx(sum(step.data_time_s or 0 for step in counted) / sum(times))
    padded, real = (sum(getattr(step, name) for step in counted) for name in ("num_padded_tokens", "num_tokens"))
    assert speed.padding_factor == pytest.approx(padded / real)
    assert speed.precision == "bf16"
    assert speed.flops_per_token == 6 * 85_056_002


def test_run_without_steps_tells_nothing(session: Session) -> None:
    speed = queries.step_speed_of(session, "reported-squad")
    assert (speed.num_steps, speed.step_time_p50_s, speed.data_share, speed.padding_factor) == (0, None, None, None)
    assert speed.flops_per_token is None


def test_only_the_newest_steps_are_read(engine: Engine, tmp_path: Path) -> None:
    num_steps = SUMMARY_STEPS + 200
    write_run(tmp_path / "runs", replace(PLAIN, attempts=(AttemptSpec(1, num_steps, NOW - 900),), num_steps=num_steps))
    ingest(engine, tmp_path / "runs")
    with Session(engine) as session:
        speed = queries.step_speed_of(session, PLAIN.run_id)
        newest = queries.steps_of(session, PLAIN.run_id, after=200, limit=2000)
    assert speed.num_steps == SUMMARY_STEPS
    assert speed.step_time_p50_s == pytest.approx(np.median([step.step_time_s for step in newest]))
