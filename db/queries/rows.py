"""What queries return: frozen rows whose fields are columns, units in their names."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from sqlalchemy import ColumnElement
from sqlalchemy.orm import DeclarativeBase


def columns_of(
    entity: type[DeclarativeBase],
    row_type: type[Any],
    computed: Mapping[str, ColumnElement[Any]] | None = None,
) -> list[ColumnElement[Any]]:
    """Return one labelled column for each field of a row type: a select never reads more than that."""
    computed = computed or {}
    return [
        (computed[field.name] if field.name in computed else getattr(entity, field.name)).label(field.name)
        for field in fields(row_type)
    ]


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """One line of the table of runs."""

    run_id: str
    name: str | None
    tags: list[Any]
    status: str
    """`running`, `finished`, `failed`, `preempted` or `lost`."""
    provenance: str
    recipe: str | None
    model: str | None
    parallel: str | None
    precision: str | None
    world_size: int | None
    num_nodes: int | None
    device_type: str | None
    device_name: str | None
    global_batch_size: int | None
    num_attempts: int
    step: int | None
    num_steps: int | None
    em: float | None
    f1: float | None
    final_loss: float | None
    wall_clock_s: float | None
    samples_per_s: float | None
    tokens_per_s: float | None
    created_at: float
    last_seen_at: float | None


@dataclass(frozen=True, kw_only=True)
class RunDetail(RunRow):
    """One run with all that its page says of it."""

    note: str | None
    dataset: str | None
    config: dict[str, Any]
    config_digest: str
    started_at: float | None
    ended_at: float | None
    num_epochs: float | None
    num_train_features: int | None
    num_parameters: int | None
    train_time_s: float | None
    eval_time_s: float | None
    peak_memory_bytes: int | None
    peak_reserved_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class AttemptRow:
    """One life of a process group."""

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
    """Newest steps with a time, warm-up left out, that the next five are of; None before the first."""
    step_time_p50_s: float | None
    step_time_p95_s: float | None
    data_share: float | None
    padding_factor: float | None
    token_imbalance: float | None
    phases: dict[str, Any]
    """Seconds by name, besides steps, evaluations and checkpoints."""


@dataclass(frozen=True)
class AttemptSteps:
    """Which steps an attempt took, and how many of them a newer attempt took again."""

    attempt: int
    first_step: int
    last_step: int
    num_rows: int
    kept_through: int
    """Steps above this one were redone; below ``first_step`` when all were."""

    @property
    def num_redone(self) -> int:
        """Steps of this attempt that count for nothing."""
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
    """Consecutive steps of one attempt: mean loss with its extremes; a single step where all fit."""

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
    """Consecutive steps of one attempt: all their features (tokens) over all their time."""

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
    """Mean of these steps, as the next."""
    mean_rank_tokens: float | None


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
    """Of the journal; with the attempt it names the evaluation."""
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
    """Anything that was worth a line."""

    attempt: int
    node_rank: int
    t: float
    name: str
    message: str | None
    data: dict[str, Any]


@dataclass(frozen=True)
class SystemRow:
    """Use of one node at a moment."""

    attempt: int
    node_rank: int
    t: float
    cpu_percent: float | None
    memory_bytes: int | None
    gpus: list[Any]


@dataclass(frozen=True)
class TimeShare:
    """Seconds of a run's wall clock that went into one kind of work."""

    what: Literal["setup", "warm-up steps", "steps", "redone steps", "evaluation", "checkpoints", "waits", "other"]
    seconds: float
