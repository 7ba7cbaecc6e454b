"""Tables with one row per line of an attempt's journal."""

from typing import Any

from sqlalchemy import BigInteger, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from db.models.base import Base

# SQLite then stores rows in key order, without a separate index.
_CLUSTERED = {"sqlite_with_rowid": False}


class _AttemptKey:
    """First two columns of the primary key: run and attempt."""

    # Sorted first, so that the primary key serves every query of a run.
    run_id: Mapped[str] = mapped_column(String(64), primary_key=True, sort_order=-3)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False, sort_order=-2)


class Step(_AttemptKey, Base):
    """One optimizer step; for a step redone after a crash, the newest attempt counts."""

    __tablename__ = "steps"
    __table_args__ = _CLUSTERED

    step: Mapped[int] = mapped_column(primary_key=True)
    t: Mapped[float]
    epoch: Mapped[int | None]
    samples_seen: Mapped[int | None] = mapped_column(BigInteger)
    loss: Mapped[float | None]
    grad_norm: Mapped[float | None]
    learning_rate: Mapped[float | None]
    step_time_s: Mapped[float | None]
    data_time_s: Mapped[float | None]
    num_features: Mapped[int | None]
    num_tokens: Mapped[int | None]
    num_padded_tokens: Mapped[int | None]
    peak_memory_bytes: Mapped[int | None] = mapped_column(BigInteger)
    is_warmup: Mapped[bool]
    max_rank_tokens: Mapped[int | None]
    mean_rank_tokens: Mapped[float | None]
    peak_reserved_bytes: Mapped[int | None] = mapped_column(BigInteger)


class Evaluation(_AttemptKey, Base):
    """EM and F1 in percent at a step."""

    __tablename__ = "evaluations"

    line: Mapped[int] = mapped_column(primary_key=True)
    t: Mapped[float]
    step: Mapped[int]
    split: Mapped[str] = mapped_column(Text)
    em: Mapped[float | None]
    f1: Mapped[float | None]
    loss: Mapped[float | None]
    num_examples: Mapped[int | None]
    num_features: Mapped[int | None]
    eval_time_s: Mapped[float | None]
    predictions: Mapped[str | None] = mapped_column(Text)


class Checkpoint(_AttemptKey, Base):
    """A committed checkpoint; it may have been pruned since."""

    __tablename__ = "checkpoints"

    line: Mapped[int] = mapped_column(primary_key=True)
    t: Mapped[float]
    step: Mapped[int]
    path: Mapped[str] = mapped_column(Text)
    bytes: Mapped[int | None] = mapped_column(BigInteger)
    save_time_s: Mapped[float | None]
    blocked_time_s: Mapped[float | None]
    reason: Mapped[str | None] = mapped_column(Text)


class Event(_AttemptKey, Base):
    """Other events: resumes, lost peers, skipped checkpoints, halved micro-batches."""

    __tablename__ = "events"

    node_rank: Mapped[int] = mapped_column(primary_key=True)
    line: Mapped[int] = mapped_column(primary_key=True)
    t: Mapped[float]
    name: Mapped[str] = mapped_column(Text)
    message: Mapped[str | None] = mapped_column(Text)
    data: Mapped[dict[str, Any]]


class SystemSample(_AttemptKey, Base):
    """Utilization of one node, every few seconds."""

    __tablename__ = "system_samples"
    __table_args__ = _CLUSTERED

    node_rank: Mapped[int] = mapped_column(primary_key=True)
    line: Mapped[int] = mapped_column(primary_key=True)
    t: Mapped[float]
    cpu_percent: Mapped[float | None]
    memory_bytes: Mapped[int | None] = mapped_column(BigInteger)
    gpus: Mapped[list[Any]]


class Profile(_AttemptKey, Base):
    """Summary of one profiler trace."""

    __tablename__ = "profiles"

    node_rank: Mapped[int] = mapped_column(primary_key=True)
    line: Mapped[int] = mapped_column(primary_key=True)
    t: Mapped[float]
    step: Mapped[int | None]
    rank: Mapped[int | None]
    summary: Mapped[dict[str, Any]]
    trace: Mapped[str | None] = mapped_column(Text)
