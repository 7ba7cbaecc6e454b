"""Step speed of a run."""

import numpy as np
import pytest
from sqlalchemy.orm import Session

from db import queries
from tests.support.query_runs import PLAIN


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


def test_run_without_steps_has_no_step_speed(session: Session) -> None:
    speed = queries.step_speed_of(session, "reported-squad")
    assert (speed.num_steps, speed.step_time_p50_s, speed.data_share, speed.padding_factor) == (0, None, None, None)
    assert speed.flops_per_token is None
