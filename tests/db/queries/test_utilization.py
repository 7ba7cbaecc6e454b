"""Step speed of a run, peaks of devices, and utilization against hand-computed values."""

import numpy as np
import pytest
from sqlalchemy.orm import Session

from db import queries
from db.queries.utilization import mfu, peak_flops_per_s
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


@pytest.mark.parametrize(
    ("device_name", "precision"),
    [
        (None, "bf16"),
        ("NVIDIA H100 80GB HBM3", None),
        ("NVIDIA H100 80GB HBM3", "auto"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "bf16"),
        ("Intel(R) Xeon(R) Platinum 8480+", "fp32"),
        ("Tesla T4", "bf16"),
    ],
)
def test_unknown_peak_is_none(device_name: str | None, precision: str | None) -> None:
    assert peak_flops_per_s(device_name, precision) is None


def test_utilization_is_of_all_devices() -> None:
    peak = peak_flops_per_s("NVIDIA A100-PCIE-40GB", "bf16")
    assert peak == 312e12
    # 100,000 tokens/s of 510 MFLOP a token are 51 TFLOP/s; two A100 have 624.
    assert mfu(100_000, 510e6, 2, peak) == pytest.approx(51 / 624)
