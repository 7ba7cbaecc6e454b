"""Steps of one run, thinned by the database; for a step that was redone, the newest attempt counts."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any

from sqlalchemy import ColumnElement, Double, Row, and_, cast, func, select
from sqlalchemy.orm import Session

from db.models import Step
from db.queries.columns import columns_of


@dataclass(frozen=True)
class AttemptSteps:
    """Steps of an attempt, and how many of them a newer attempt redid."""

    attempt: int
    first_step: int
    last_step: int
    num_rows: int
    kept_through: int
    """Steps above this one were redone; less than ``first_step`` if all were."""

    @property
    def num_redone(self) -> int:
        """Steps of this attempt that a newer attempt redid."""
        return max(0, self.last_step - max(self.kept_through, self.first_step - 1))


@dataclass(frozen=True)
class StepRow:
    """One optimizer step of the whole global batch."""

    attempt: int
    step: int
    t: float
    epoch: int | None
    samples_seen: int | None
    loss: float | None
    grad_norm: float | None
    learning_rate: float | None
    step_time_s: float | None
    data_time_s: float | None
    num_features: int | None
    num_tokens: int | None
    num_padded_tokens: int | None
    peak_memory_bytes: int | None
    is_warmup: bool
    max_rank_tokens: int | None
    mean_rank_tokens: float | None
    peak_reserved_bytes: int | None


@dataclass(frozen=True)
class LossPoint:
    """Consecutive steps of one attempt: mean loss with its extremes; a single step if all steps fit."""

    attempt: int
    first_step: int
    last_step: int
    loss: float | None
    loss_min: float | None
    loss_max: float | None
    learning_rate: float | None
    grad_norm: float | None
    """The largest of these steps."""


@dataclass(frozen=True)
class ThroughputPoint:
    """Consecutive steps of one attempt: total features (tokens) over total time."""

    attempt: int
    first_step: int
    last_step: int
    is_warmup: bool
    samples_per_s: float | None
    tokens_per_s: float | None
    step_time_s: float | None
    """Mean of these steps."""
    step_time_s_max: float | None
    data_time_s: float | None
    """Mean of these steps."""
    max_rank_tokens: float | None
    """Mean of these steps; the same for the next field."""
    mean_rank_tokens: float | None


def lineage_of(session: Session, run_id: str) -> list[AttemptSteps]:
    """Return the steps of each attempt and how many of them count.

    An attempt that starts at step n resumes after step n - 1, so it redoes the steps of older attempts from n on.
    """
    statement = (
        select(Step.attempt, func.min(Step.step), func.max(Step.step), func.count())
        .where(Step.run_id == run_id)
        .group_by(Step.attempt)
        .order_by(Step.attempt.desc())
    )
    lineage: list[AttemptSteps] = []
    kept_through: int | None = None
    for attempt, first, last, num_rows in session.execute(statement):
        kept = last if kept_through is None else min(last, kept_through)
        lineage.append(AttemptSteps(attempt, first, last, num_rows, kept))
        kept_through = first - 1 if kept_through is None else min(kept_through, first - 1)
    return lineage[::-1]


def steps_of(session: Session, run_id: str, after: int = 0, limit: int = 1000) -> list[StepRow]:
    """Return the steps above ``after`` that count, in order, at most ``limit`` of them."""
    rows: list[StepRow] = []
    for part in lineage_of(session, run_id):
        if len(rows) == limit or part.kept_through <= after:
            continue
        statement = (
            select(*columns_of(Step, StepRow))
            .where(_within(run_id, part.attempt, max(after + 1, part.first_step), part.kept_through))
            .order_by(Step.step)
            .limit(limit - len(rows))
        )
        rows.extend(StepRow(**row._mapping) for row in session.execute(statement))
    return rows


def loss_series(session: Session, run_id: str, max_points: int = 1000, *, redone: bool = False) -> list[LossPoint]:
    """Return the loss of the steps that count, in at most about ``max_points`` points that keep the extremes.

    With ``redone``, of the steps that a newer attempt redid.
    """
    columns = (
        func.avg(Step.loss).label("loss"),
        func.min(Step.loss).label("loss_min"),
        func.max(Step.loss).label("loss_max"),
        func.avg(Step.learning_rate).label("learning_rate"),
        func.max(Step.grad_norm).label("grad_norm"),
    )
    return [
        LossPoint(attempt=attempt, **row._mapping)
        for attempt, row in _slots(session, run_id, max_points, columns, redone=redone)
    ]


def throughput_series(session: Session, run_id: str, max_points: int = 1000) -> list[ThroughputPoint]:
    """Return the throughput of the steps that count, warm-up separate, in at most about ``max_points`` points."""
    is_timed = Step.step_time_s > 0
    timed_s = func.sum(Step.step_time_s).filter(is_timed)
    columns = (
        Step.is_warmup.label("is_warmup"),
        (func.sum(Step.num_features).filter(is_timed) / timed_s).label("samples_per_s"),
        (func.sum(Step.num_tokens).filter(is_timed) / timed_s).label("tokens_per_s"),
        func.avg(Step.step_time_s).label("step_time_s"),
        func.max(Step.step_time_s).label("step_time_s_max"),
        func.avg(Step.data_time_s).label("data_time_s"),
        cast(func.avg(Step.max_rank_tokens), Double).label("max_rank_tokens"),
        func.avg(Step.mean_rank_tokens).label("mean_rank_tokens"),
    )
    return [
        ThroughputPoint(attempt=attempt, **row._mapping)
        for attempt, row in _slots(session, run_id, max_points, columns, redone=False)
    ]


def _slots(
    session: Session, run_id: str, max_points: int, columns: tuple[ColumnElement[Any], ...], *, redone: bool
) -> Iterator[tuple[int, Row[Any]]]:
    """Yield (attempt, aggregates over consecutive steps) in order."""
    lineage = lineage_of(session, run_id)
    is_thinned = sum(part.num_rows for part in lineage) > max_points
    width = ceil(sum(part.last_step - part.first_step + 1 for part in lineage) / max_points) if is_thinned else 1
    for part in lineage:
        first, last = part.first_step, part.kept_through
        if redone:
            first, last = max(first, part.kept_through + 1), part.last_step
        if first > last:
            continue
        slot = Step.step // width
        statement = (
            select(func.min(Step.step).label("first_step"), func.max(Step.step).label("last_step"), *columns)
            .where(_within(run_id, part.attempt, first, last))
            .group_by(slot, Step.is_warmup)
            .order_by(func.min(Step.step))
        )
        for row in session.execute(statement):
            yield part.attempt, row


def _within(run_id: str, attempt: int, first: int, last: int) -> ColumnElement[bool]:
    return and_(Step.run_id == run_id, Step.attempt == attempt, Step.step.between(first, last))
