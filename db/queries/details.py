"""What one run left behind besides its steps: attempts, evaluations, checkpoints, events, system samples."""

from dataclasses import replace
from typing import Any, TypeVar

from sqlalchemy import Integer, cast, func, select
from sqlalchemy.orm import Session

from db.models import Attempt, Base, Checkpoint, Evaluation, Event, SystemSample
from db.queries.rows import AttemptRow, CheckpointRow, EvaluationRow, EventRow, SystemRow, columns_of
from db.queries.status import effective_status

RowT = TypeVar("RowT")


def attempts_of(session: Session, run_id: str, now: float) -> list[AttemptRow]:
    """Return every attempt of a run, the first one first, with its status as seen at a Unix time."""
    statement = select(*columns_of(Attempt, AttemptRow)).where(Attempt.run_id == run_id)
    attempts = [AttemptRow(**row._mapping) for row in session.execute(statement.order_by(Attempt.attempt))]
    newest = len(attempts) - 1
    # An attempt that another one followed is over, however short its silence.
    seen_at = [now if index == newest else float("inf") for index in range(len(attempts))]
    return [
        replace(attempt, status=effective_status(attempt.status, attempt.last_seen_at, at))
        for attempt, at in zip(attempts, seen_at, strict=True)
    ]


def evaluations_of(session: Session, run_id: str) -> list[EvaluationRow]:
    """Return the evaluations by step; of a step that was evaluated again, the newest."""
    statement = select(*columns_of(Evaluation, EvaluationRow)).where(Evaluation.run_id == run_id)
    newest = {
        (row.split, row.step): EvaluationRow(**row._mapping)
        for row in session.execute(statement.order_by(Evaluation.attempt, Evaluation.line))
    }
    return sorted(newest.values(), key=lambda row: (row.step, row.split))


def checkpoints_of(session: Session, run_id: str, limit: int = 200) -> list[CheckpointRow]:
    """Return the newest checkpoints, the newest first."""
    return _newest(session, (Checkpoint, CheckpointRow), run_id, limit)


def events_of(session: Session, run_id: str, limit: int = 200) -> list[EventRow]:
    """Return the newest events, the newest first."""
    return _newest(session, (Event, EventRow), run_id, limit)


def _newest(session: Session, kind: tuple[type[Base], type[RowT]], run_id: str, limit: int) -> list[RowT]:
    entity: Any = kind[0]
    statement = select(*columns_of(entity, kind[1])).where(entity.run_id == run_id)
    newest_first = statement.order_by(entity.t.desc(), entity.attempt.desc(), entity.line.desc())
    return [kind[1](**row._mapping) for row in session.execute(newest_first.limit(limit))]


def has_system_samples(session: Session, run_id: str) -> bool:
    """Tell whether any node of a run was sampled."""
    return session.execute(select(SystemSample.t).where(SystemSample.run_id == run_id).limit(1)).first() is not None


def system_samples_of(session: Session, run_id: str, max_points: int = 300) -> list[SystemRow]:
    """Return at most about ``max_points`` samples of each node, spread evenly over the run's time."""
    of_run = SystemSample.run_id == run_id
    start, end = session.execute(select(func.min(SystemSample.t), func.max(SystemSample.t)).where(of_run)).one()
    if start is None:
        return []
    # One sample a slot of time; a slot of 0 s would divide by zero when there is a single sample.
    slot_s = max(1e-6, (end - start) / max_points)
    slot = cast((SystemSample.t - start) / slot_s, Integer)
    first_of_slot = (
        select(SystemSample.attempt, SystemSample.node_rank, func.min(SystemSample.line).label("line"))
        .where(of_run)
        .group_by(SystemSample.attempt, SystemSample.node_rank, slot)
        .subquery()
    )
    statement = (
        select(*columns_of(SystemSample, SystemRow))
        .join(
            first_of_slot,
            (SystemSample.attempt == first_of_slot.c.attempt)
            & (SystemSample.node_rank == first_of_slot.c.node_rank)
            & (SystemSample.line == first_of_slot.c.line),
        )
        .where(of_run)
        .order_by(SystemSample.t)
    )
    return [SystemRow(**row._mapping) for row in session.execute(statement)]
