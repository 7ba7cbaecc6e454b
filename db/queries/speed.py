"""How one run's steps went: percentiles, waits for data, padding, and what its model costs a token."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from db.models import Attempt, Step

MOST_STEPS = 1_000
"""Enough for a 95th percentile, and few enough to read for every row of a page."""


@dataclass(frozen=True, kw_only=True)
class StepSpeed:
    """Of a run's newest steps that are no warm-up, at most a thousand; None where they do not tell."""

    num_steps: int
    step_time_p50_s: float | None
    step_time_p95_s: float | None
    data_share: float | None
    """Waits for data over step time, a fraction."""
    padding_ratio: float | None
    """Tokens of a batch padded to the full length over real ones; 1 or more."""
    precision: str | None
    """In use, as the newest attempt's setup says."""
    flops_per_token: float | None
    """Forward and backward; attention scores left out."""


def step_speed_of(session: Session, run_id: str) -> StepSpeed:
    """Return how the steps of a run went."""
    statement = (
        select(Step.step_time_s, Step.data_time_s, Step.num_tokens, Step.num_padded_tokens)
        .where(Step.run_id == run_id, Step.is_warmup.is_(False), Step.step_time_s > 0)
        .order_by(Step.attempt.desc(), Step.step.desc())
        .limit(MOST_STEPS)
    )
    rows = session.execute(statement).all()
    median_s, slow_s = _percentiles([row.step_time_s for row in rows])
    waits = [(row.data_time_s, row.step_time_s) for row in rows if row.data_time_s is not None]
    paddings = [(row.num_padded_tokens, row.num_tokens) for row in rows if row.num_padded_tokens and row.num_tokens]
    setup = _setup(session, run_id)
    model = setup.get("model")
    flops: Any = model.get("flops_per_token") if isinstance(model, dict) else None
    precision = setup.get("precision")
    return StepSpeed(
        num_steps=len(rows),
        step_time_p50_s=median_s,
        step_time_p95_s=slow_s,
        data_share=_ratio(waits),
        padding_ratio=_ratio(paddings),
        precision=precision if isinstance(precision, str) else None,
        flops_per_token=float(flops) if type(flops) in (int, float) and 0 < flops < 1e30 else None,
    )


def _percentiles(times: list[float]) -> tuple[float | None, float | None]:
    if not times:
        return None, None
    middle, slow = np.quantile(times, [0.5, 0.95])
    return float(middle), float(slow)


def _ratio(pairs: list[tuple[float, float]]) -> float | None:
    return sum(first for first, _ in pairs) / sum(second for _, second in pairs) if pairs else None


def _setup(session: Session, run_id: str) -> dict[str, Any]:
    newest = select(Attempt.setup).where(Attempt.run_id == run_id).order_by(Attempt.attempt.desc()).limit(1)
    return session.scalar(newest) or {}
