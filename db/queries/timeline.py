"""Wall clock of a run: its attempts with lost steps, and the time of each kind of work."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db.models import Checkpoint, Evaluation, Step
from db.queries.details import AttemptRow
from db.queries.steps import lineage_of


@dataclass(frozen=True, kw_only=True)
class AttemptSpan:
    """One attempt on the timeline."""

    attempt: int
    world_size: int
    started_at: float
    ended_at: float
    """Unix seconds; for an attempt without an end, the time of its last line."""
    status: str
    reason: str | None
    first_step: int | None
    last_step: int | None
    num_redone: int
    """Steps after its last checkpoint that a newer attempt redid."""
    lost_since: float | None
    """Unix seconds of the last step that counts, or of the start if none does; None if no step was redone."""


def timeline_of(session: Session, run_id: str, attempts: list[AttemptRow], limit: int = 500) -> list[AttemptSpan]:
    """Return the newest attempts with a known world size, in order."""
    lineage = {part.attempt: part for part in lineage_of(session, run_id)}
    spans = []
    for row in attempts[-limit:]:
        if row.world_size is None:
            continue
        part = lineage.get(row.attempt)
        lost_since = None
        if part is not None and part.num_redone:
            kept = (Step.run_id == run_id, Step.attempt == row.attempt, Step.step == part.kept_through)
            lost_since = session.scalar(select(Step.t).where(*kept)) or row.started_at
        spans.append(
            AttemptSpan(
                attempt=row.attempt,
                world_size=row.world_size,
                started_at=row.started_at,
                ended_at=row.end_or_last_line_at,
                status=row.status,
                reason=row.reason,
                first_step=part.first_step if part else None,
                last_step=part.last_step if part else None,
                num_redone=part.num_redone if part else 0,
                lost_since=lost_since,
            )
        )
    return spans


@dataclass(frozen=True)
class TimeShare:
    """Seconds of a run's wall clock spent on one kind of work."""

    what: Literal["setup", "warm-up steps", "steps", "redone steps", "evaluation", "checkpoints", "waits", "other"]
    seconds: float


def time_shares(session: Session, run_id: str, attempts: list[AttemptRow]) -> list[TimeShare]:
    """Return the seconds of each kind of work from the first start to the last end; ``other`` is the rest.

    Times are those of the first node. Checkpoints count with the time that they blocked training. Empty if start and
    end are equal, as in reported results, or if no kind of work has a time.
    """
    if not attempts:
        return []
    steps_s, warmup_s, redone_s = _step_seconds(session, run_id)
    evaluation_s = session.scalar(select(func.sum(Evaluation.eval_time_s)).where(Evaluation.run_id == run_id))
    blocked_s = session.scalar(select(func.sum(Checkpoint.blocked_time_s)).where(Checkpoint.run_id == run_id))
    waits_s = sum(max(0.0, after.started_at - before.end_or_last_line_at) for before, after in pairwise(attempts))
    known = [
        TimeShare("setup", sum(attempt.setup_time_s or 0.0 for attempt in attempts)),
        TimeShare("warm-up steps", warmup_s),
        TimeShare("steps", steps_s),
        TimeShare("redone steps", redone_s),
        TimeShare("evaluation", evaluation_s or 0.0),
        TimeShare("checkpoints", blocked_s or 0.0),
        TimeShare("waits", waits_s),
    ]
    whole_s = attempts[-1].end_or_last_line_at - attempts[0].started_at
    if whole_s <= 0 or not any(share.seconds for share in known):
        return []
    rest = TimeShare("other", max(0.0, whole_s - sum(share.seconds for share in known)))
    return [share for share in [*known, rest] if share.seconds > 0]


def _step_seconds(session: Session, run_id: str) -> tuple[float, float, float]:
    """Return the seconds of steps that count, of warm-up steps that count, and of steps that were redone."""
    kept = {False: 0.0, True: 0.0}
    redone = 0.0
    for part in lineage_of(session, run_id):
        is_kept = Step.step <= part.kept_through
        statement = (
            select(is_kept, Step.is_warmup, func.sum(Step.step_time_s))
            .where(Step.run_id == run_id, Step.attempt == part.attempt)
            .group_by(is_kept, Step.is_warmup)
        )
        for kept_here, is_warmup, seconds in session.execute(statement):
            if kept_here:
                kept[is_warmup] += seconds or 0.0
            else:
                redone += seconds or 0.0
    return kept[False], kept[True], redone
