"""Timeline of a run: start, end, world size and lost steps of each attempt."""

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from db.models import Step
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
                ended_at=row.last_seen_at if row.ended_at is None else row.ended_at,
                status=row.status,
                reason=row.reason,
                first_step=part.first_step if part else None,
                last_step=part.last_step if part else None,
                num_redone=part.num_redone if part else 0,
                lost_since=lost_since,
            )
        )
    return spans
