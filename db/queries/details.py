"""Attempts, evaluations, checkpoints, events and system samples of one run."""

from dataclasses import dataclass, replace
from typing import Any, TypeVar

from sqlalchemy import Integer, cast, func, select
from sqlalchemy.orm import Session

from db.models import Attempt, Checkpoint, Evaluation, Event, SystemSample
from db.queries.columns import columns_of
from db.queries.runs import effective_status

RowT = TypeVar("RowT")


@dataclass(frozen=True, kw_only=True)
class AttemptRow:
    """One lifetime of a process group."""

    attempt: int
    status: str
    reason: str | None
    started_at: float
    ended_at: float | None
    last_seen_at: float
    queue_wait_s: float | None
    world_size: int | None
    num_nodes: int | None
    restart_count: int | None
    hosts: list[Any]
    software: dict[str, Any]
    git: dict[str, Any]
    scheduler: dict[str, Any]
    setup: dict[str, Any]
    command: list[Any]
    start_step: int | None
    end_step: int | None
    resumed_from: str | None
    setup_time_s: float | None
    wall_clock_s: float | None
    train_time_s: float | None
    final_loss: float | None
    samples_per_s: float | None
    tokens_per_s: float | None
    peak_memory_bytes: int | None
    peak_reserved_bytes: int | None
    num_timed_steps: int | None
    """Newest steps with a time, without warm-up; the next five fields summarize them. None before the first."""
    step_time_p50_s: float | None
    step_time_p95_s: float | None
    data_share: float | None
    padding_factor: float | None
    token_imbalance: float | None
    phases: dict[str, Any]
    """Seconds by name, other than steps, evaluations and checkpoints."""

    @property
    def end_or_last_line_at(self) -> float:
        """Unix seconds."""
        return self.last_seen_at if self.ended_at is None else self.ended_at


@dataclass(frozen=True)
class EvaluationRow:
    """EM and F1 in percent at a step."""

    attempt: int
    step: int
    t: float
    split: str
    em: float | None
    f1: float | None
    loss: float | None
    num_examples: int | None
    num_features: int | None
    eval_time_s: float | None
    line: int
    """Line number in the journal; identifies the evaluation within its attempt."""
    predictions: str | None
    """Path in the run directory."""


@dataclass(frozen=True)
class CheckpointRow:
    """A checkpoint that was committed."""

    attempt: int
    step: int
    t: float
    path: str
    bytes: int | None
    save_time_s: float | None
    blocked_time_s: float | None
    reason: str | None


@dataclass(frozen=True)
class EventRow:
    """Any other event, such as a resume or a lost peer."""

    attempt: int
    node_rank: int
    t: float
    name: str
    message: str | None
    data: dict[str, Any]


@dataclass(frozen=True)
class SystemRow:
    """Utilization of one node at a time."""

    attempt: int
    node_rank: int
    t: float
    cpu_percent: float | None
    memory_bytes: int | None
    gpus: list[Any]


def attempts_of(session: Session, run_id: str, now: float) -> list[AttemptRow]:
    """Return the attempts of a run in order, with their status at the Unix time `now`."""
    columns = columns_of(Attempt, AttemptRow, status=effective_status(Attempt, now))
    statement = select(*columns).where(Attempt.run_id == run_id).order_by(Attempt.attempt)
    attempts = [AttemptRow(**row._mapping) for row in session.execute(statement)]
    # An attempt followed by another one has ended, even if its last line is recent.
    older = [replace(each, status="lost") if each.status == "running" else each for each in attempts[:-1]]
    return older + attempts[-1:]


def evaluations_of(session: Session, run_id: str) -> list[EvaluationRow]:
    """Return the evaluations by step; for a step that was evaluated again, the newest."""
    statement = select(*columns_of(Evaluation, EvaluationRow)).where(Evaluation.run_id == run_id)
    newest = {
        (row.split, row.step): EvaluationRow(**row._mapping)
        for row in session.execute(statement.order_by(Evaluation.attempt, Evaluation.line))
    }
    return sorted(newest.values(), key=lambda row: (row.step, row.split))


def checkpoints_of(session: Session, run_id: str, limit: int = 200) -> list[CheckpointRow]:
    """Return the newest checkpoints, the newest first."""
    return _newest(session, Checkpoint, CheckpointRow, run_id, limit)


def events_of(session: Session, run_id: str, limit: int = 200) -> list[EventRow]:
    """Return the newest events, the newest first."""
    return _newest(session, Event, EventRow, run_id, limit)


def _newest(session: Session, entity: Any, row_type: type[RowT], run_id: str, limit: int) -> list[RowT]:
    statement = select(*columns_of(entity, row_type)).where(entity.run_id == run_id)
    newest_first = statement.order_by(entity.t.desc(), entity.attempt.desc(), entity.line.desc())
    return [row_type(**row._mapping) for row in session.execute(newest_first.limit(limit))]


def has_system_samples(session: Session, run_id: str) -> bool:
    """Return whether a run has any system sample."""
    return session.execute(select(SystemSample.t).where(SystemSample.run_id == run_id).limit(1)).first() is not None


def system_samples_of(session: Session, run_id: str, max_points: int = 300) -> list[SystemRow]:
    """Return at most about ``max_points`` samples of each node, spread evenly over the run's time."""
    of_run = SystemSample.run_id == run_id
    start, end = session.execute(select(func.min(SystemSample.t), func.max(SystemSample.t)).where(of_run)).one()
    if start is None:
        return []
    # One sample per time slot; with a single sample the slot would be 0 s, hence the minimum.
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
