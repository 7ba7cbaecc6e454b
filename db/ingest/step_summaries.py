"""Summary of an attempt's newest steps, stored with the attempt so that pages of many runs read no steps."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from db.models import Attempt, Step

SUMMARY_STEPS = 1_000
"""Number of steps: enough for a 95th percentile, few enough to read at every ingest."""


def summarise_steps(session: Session, attempt: Attempt) -> None:
    """Update an attempt's summary from its steps in the database."""
    statement = (
        select(
            Step.step_time_s,
            Step.data_time_s,
            Step.num_tokens,
            Step.num_padded_tokens,
            Step.max_rank_tokens,
            Step.mean_rank_tokens,
        )
        .where(
            Step.run_id == attempt.run_id,
            Step.attempt == attempt.attempt,
            Step.is_warmup.is_(False),
            Step.step_time_s > 0,
        )
        .order_by(Step.step.desc())
        .limit(SUMMARY_STEPS)
    )
    rows = session.execute(statement).all()
    if not rows:
        return
    middle, slow = np.quantile([row.step_time_s for row in rows], [0.5, 0.95])
    attempt.num_timed_steps = len(rows)
    attempt.step_time_p50_s, attempt.step_time_p95_s = float(middle), float(slow)
    attempt.data_share = _ratio([(row.data_time_s, row.step_time_s) for row in rows])
    attempt.padding_factor = _ratio([(row.num_padded_tokens, row.num_tokens) for row in rows])
    attempt.token_imbalance = _ratio([(row.max_rank_tokens, row.mean_rank_tokens) for row in rows])


def _ratio(pairs: Sequence[tuple[Any, Any]]) -> float | None:
    """Return sum(first) / sum(second) over the pairs with both values; None if no pair has both."""
    known = [(first, second) for first, second in pairs if first is not None and second]
    return sum(first for first, _ in known) / sum(second for _, second in known) if known else None
