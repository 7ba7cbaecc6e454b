"""Step speed of runs: percentiles of step time, data time, padding, token balance, and FLOPs per token."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from db.models import Attempt

_SUMMARY = ("step_time_p50_s", "step_time_p95_s", "data_share", "padding_factor", "token_imbalance")


@dataclass(frozen=True, kw_only=True)
class StepSpeed:
    """Summary of an attempt's newest steps (at most a thousand) without warm-up; None is unknown."""

    num_steps: int
    step_time_p50_s: float | None
    step_time_p95_s: float | None
    data_share: float | None
    """Data time over step time, a fraction."""
    padding_factor: float | None
    """Tokens of a batch padded to the full length over real ones; 1 or more."""
    token_imbalance: float | None
    """Tokens of the fullest rank over those of the mean rank; 1 or more."""
    precision: str | None
    """In use, from the newest attempt's setup."""
    flops_per_token: float | None
    """Forward and backward, without attention scores."""


def step_speed_of(session: Session, run_id: str) -> StepSpeed:
    """Return the step speed of a run."""
    return step_speeds_of(session, [run_id])[run_id]


def step_speeds_of(session: Session, run_ids: Sequence[str]) -> dict[str, StepSpeed]:
    """Return the step speed of each run, from the summaries of ingest; reads no steps."""
    columns = (getattr(Attempt, name) for name in ("run_id", "setup", "num_timed_steps", *_SUMMARY))
    statement = select(*columns).where(Attempt.run_id.in_(run_ids)).order_by(Attempt.run_id, Attempt.attempt.desc())
    attempts: dict[str, list[Any]] = {run_id: [] for run_id in run_ids}
    for row in session.execute(statement):
        attempts[row.run_id].append(row)
    return {run_id: _speed(rows) for run_id, rows in attempts.items()}


def _speed(attempts: Sequence[Any]) -> StepSpeed:
    """Return the step speed from a run's attempts, the newest first."""
    timed = next((row for row in attempts if row.num_timed_steps), None)
    setup: dict[str, Any] = attempts[0].setup if attempts else {}
    model = setup.get("model")
    flops: Any = model.get("flops_per_token") if isinstance(model, dict) else None
    precision = setup.get("precision")
    return StepSpeed(
        num_steps=timed.num_timed_steps if timed else 0,
        **{name: getattr(timed, name, None) for name in _SUMMARY},
        precision=precision if isinstance(precision, str) else None,
        flops_per_token=float(flops) if type(flops) in (int, float) and 0 < flops < 1e30 else None,
    )
