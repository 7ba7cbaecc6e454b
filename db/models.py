"""Tables of the record: an index of the journals, which ingest can rebuild at any time.

Times are Unix seconds (float) as in the journal; names contain units. `line` is the line number in the journal file.
Only ingest writes to these tables.
"""

from typing import Any, ClassVar

from sqlalchemy import JSON, BigInteger, Double, ForeignKey, Index, MetaData, String, Text, false
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

NAMING_CONVENTION = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """Declarative base with named constraints, so that migrations can name them."""

    metadata = MetaData(naming_convention=NAMING_CONVENTION)
    type_annotation_map: ClassVar = {float: Double, dict[str, Any]: JSON, list[Any]: JSON}


_FILTERS = ("status", "provenance", "recipe", "model", "parallel", "device_name", "last_seen_at")
_ORDERS = ("world_size", "em", "f1", "final_loss", "wall_clock_s", "samples_per_s", "tokens_per_s", "created_at")


class Run(Base):
    """One training run with all its attempts; columns summarize this run and never compare it with others."""

    __tablename__ = "runs"
    __table_args__ = (
        Index(None, "created_at"),
        Index(None, "config_digest"),
        Index(None, "provenance", "created_at"),
        Index(None, "status", "num_lines", "last_seen_at"),
        # SQLite filters, counts and sorts with this index alone, without the wide rows. In PostgreSQL the index is
        # empty (partial): an index entry has a size limit there, so runs with long texts could not be inserted.
        Index("ix_runs_filters", *_FILTERS, *_ORDERS, "run_id", postgresql_where=false()),
    )

    run_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    provenance: Mapped[str] = mapped_column(String(16))
    name: Mapped[str | None] = mapped_column(Text)
    tags: Mapped[list[Any]]
    note: Mapped[str | None] = mapped_column(Text)
    recipe: Mapped[str | None] = mapped_column(Text)
    model: Mapped[str | None] = mapped_column(Text)
    dataset: Mapped[str | None] = mapped_column(Text)
    parallel: Mapped[str | None] = mapped_column(String(16))
    """`none`, `ddp` or `fsdp`."""
    precision: Mapped[str | None] = mapped_column(String(16))
    config: Mapped[dict[str, Any]]
    config_digest: Mapped[str] = mapped_column(String(64))
    """Equal for repeats: a digest of config (without seed, name, resume), provenance, world sizes and devices."""
    status: Mapped[str] = mapped_column(String(16))
    """Status of the newest attempt: running, finished, failed or preempted; see `db.queries.runs` for `lost`."""
    created_at: Mapped[float]
    """Time of submission, from the run id, or the start of the first attempt."""
    started_at: Mapped[float | None]
    ended_at: Mapped[float | None]
    last_seen_at: Mapped[float | None]
    num_attempts: Mapped[int]
    world_size: Mapped[int | None]
    num_nodes: Mapped[int | None]
    device_type: Mapped[str | None] = mapped_column(String(16))
    device_name: Mapped[str | None] = mapped_column(Text)
    global_batch_size: Mapped[int | None]
    num_epochs: Mapped[float | None]
    step: Mapped[int | None]
    num_steps: Mapped[int | None]
    num_train_features: Mapped[int | None]
    num_parameters: Mapped[int | None] = mapped_column(BigInteger)
    wall_clock_s: Mapped[float | None]
    """Seconds from the start of the first attempt to the end of the last, with waits; None before the end."""
    train_time_s: Mapped[float | None]
    """Over all attempts, including steps that were redone."""
    eval_time_s: Mapped[float | None]
    final_loss: Mapped[float | None]
    em: Mapped[float | None]
    """From the newest evaluation that has one, as is `f1`."""
    f1: Mapped[float | None]
    samples_per_s: Mapped[float | None]
    """Features over all ranks per second of step time, without warm-up, of the newest attempt with such steps."""
    tokens_per_s: Mapped[float | None]
    peak_memory_bytes: Mapped[int | None] = mapped_column(BigInteger)
    peak_reserved_bytes: Mapped[int | None] = mapped_column(BigInteger)
    num_lines: Mapped[int] = mapped_column(BigInteger, server_default="0")
    """Lines of journals and annotations read so far; it changes whenever the run does."""


class Attempt(Base):
    """One lifetime of a process group."""

    __tablename__ = "attempts"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.run_id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    node_rank: Mapped[int]
    """Lowest node rank whose journal was read; these facts are from its journal."""
    provenance: Mapped[str] = mapped_column(String(16))
    name: Mapped[str | None] = mapped_column(Text)
    status: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str | None] = mapped_column(Text)
    started_at: Mapped[float]
    ended_at: Mapped[float | None]
    last_seen_at: Mapped[float]
    queue_wait_s: Mapped[float | None]
    world_size: Mapped[int | None]
    num_nodes: Mapped[int | None]
    restart_count: Mapped[int | None]
    hosts: Mapped[list[Any]]
    """One `host` object of the journal per node, by node rank."""
    software: Mapped[dict[str, Any]]
    git: Mapped[dict[str, Any]]
    scheduler: Mapped[dict[str, Any]]
    config: Mapped[dict[str, Any]]
    note: Mapped[str | None] = mapped_column(Text)
    """Note of a reported or imported result; notes of users are annotations."""
    setup: Mapped[dict[str, Any]]
    """The journal's `setup` line: dataset, model, precision and attention in use."""
    command: Mapped[list[Any]]
    start_step: Mapped[int | None]
    end_step: Mapped[int | None]
    """The last recorded step, or that of the `end` line if there are no step lines."""
    resumed_from: Mapped[str | None] = mapped_column(Text)
    setup_time_s: Mapped[float | None]
    wall_clock_s: Mapped[float | None]
    train_time_s: Mapped[float | None]
    """From the `end` line; before it, the sum of the step times."""
    eval_time_s: Mapped[float | None]
    final_loss: Mapped[float | None]
    steady_features: Mapped[int] = mapped_column(BigInteger)
    """This and the next two columns are sums over the steps that are not warm-up and have both counts and a time;
    `samples_per_s` and `tokens_per_s` are their ratios."""
    steady_tokens: Mapped[int] = mapped_column(BigInteger)
    steady_time_s: Mapped[float]
    samples_per_s: Mapped[float | None]
    tokens_per_s: Mapped[float | None]
    peak_memory_bytes: Mapped[int | None] = mapped_column(BigInteger)
    em: Mapped[float | None]
    """From the newest evaluation that has one, as is `f1`."""
    f1: Mapped[float | None]
    peak_reserved_bytes: Mapped[int | None] = mapped_column(BigInteger)
    num_timed_steps: Mapped[int | None]
    """Number of the newest steps, at most a thousand, that have a time and are not warm-up; None if there are none.
    The next five columns summarize these steps; `db.queries.StepSpeed` explains them."""
    step_time_p50_s: Mapped[float | None]
    step_time_p95_s: Mapped[float | None]
    data_share: Mapped[float | None]
    padding_factor: Mapped[float | None]
    token_imbalance: Mapped[float | None]
    phases: Mapped[dict[str, Any]] = mapped_column(server_default="{}")
    """Seconds by name, other than steps, evaluations and checkpoints, from the `setup` and `end` lines."""


# SQLite then stores rows in key order, without a separate index.
_CLUSTERED = {"sqlite_with_rowid": False}


class _AttemptKey:
    """First two columns of the primary key: run and attempt."""

    # These columns come first, so that the index of the primary key serves every query of a run.
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


class Annotation(Base):
    """Changes by a user, in order; together they give the run's name, tags and note."""

    __tablename__ = "annotations"

    run_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    line: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    t: Mapped[float]
    kind: Mapped[str] = mapped_column(String(16))
    """`name`, `tag`, `untag` or `note`."""
    value: Mapped[str] = mapped_column(Text)


class JournalFile(Base):
    """Position up to which a file has been read; ingest continues there."""

    __tablename__ = "journal_files"
    __table_args__ = (Index(None, "run_id"),)

    path: Mapped[str] = mapped_column(Text, primary_key=True)
    """Relative to the runs directory."""
    num_lines: Mapped[int]
    last_n: Mapped[int]
    """The `n` of the last line; more than `num_lines` if lines are missing."""
    num_bytes: Mapped[int] = mapped_column(BigInteger)
    run_id: Mapped[str] = mapped_column(String(64), server_default="")
