"""Tables of the record: an index of journals, rebuilt by ingest at any time.

Times are UTC Unix seconds (float) as the journal has them; units are in the names. `line` is a line's number
in its journal file. Only ingest writes here.
"""

from typing import Any

from sqlalchemy import JSON, BigInteger, Double, ForeignKey, Index, MetaData, String, Text, false
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

NAMING_CONVENTION = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


# SQLite then keeps rows once, in the order of the key, instead of in the order of arrival beside an index.
_CLUSTERED = {"sqlite_with_rowid": False}


_FILTERS = ("status", "provenance", "recipe", "model", "parallel", "device_name", "last_seen_at")


class Base(DeclarativeBase):
    """Declarative base with named constraints, so that migrations can name them."""

    metadata = MetaData(naming_convention=NAMING_CONVENTION)
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy reads this class attribute
        float: Double,
        dict[str, Any]: JSON,
        list[Any]: JSON,
    }


class Run(Base):
    """One training run over all its attempts; summary columns are of its own rows, never comparative."""

    __tablename__ = "runs"
    __table_args__ = (
        Index(None, "created_at"),
        Index(None, "config_digest"),
        Index(None, "provenance", "created_at"),
        # SQLite counts the choices of the filters from this index alone, without the wide rows. In PostgreSQL it
        # holds no row: an index there refuses texts of some thousand characters, and with them the whole run.
        Index("ix_runs_filters", *_FILTERS, postgresql_where=false()),
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
    """Equal for repeats of one another: config without seed, name and resume; provenance; each world size and
    device that its attempts had."""
    status: Mapped[str] = mapped_column(String(16))
    """Of the newest attempt as ingested: running, finished, failed, preempted; see `db.status` for `lost`."""
    created_at: Mapped[float]
    """Submission: the time stamp of the run id, or the start of the first attempt."""
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
    """From the start of the first attempt to the end of the last, waits between them included; else None."""
    train_time_s: Mapped[float | None]
    """Over all attempts, steps that were lost and redone included."""
    eval_time_s: Mapped[float | None]
    final_loss: Mapped[float | None]
    em: Mapped[float | None]
    """Of the newest evaluation that has it, as `f1`."""
    f1: Mapped[float | None]
    samples_per_s: Mapped[float | None]
    """Features over all ranks per second of step time, warm-up left out, newest attempt with such steps."""
    tokens_per_s: Mapped[float | None]
    peak_memory_bytes: Mapped[int | None] = mapped_column(BigInteger)


class Attempt(Base):
    """One life of a process group."""

    __tablename__ = "attempts"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.run_id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    node_rank: Mapped[int]
    """Of the node whose journal gave these facts: 0, unless only others' journals are here."""
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
    """One `host` object of the journal a node, by node rank."""
    software: Mapped[dict[str, Any]]
    git: Mapped[dict[str, Any]]
    scheduler: Mapped[dict[str, Any]]
    config: Mapped[dict[str, Any]]
    note: Mapped[str | None] = mapped_column(Text)
    """Of a reported or imported result; what a user notes is an annotation."""
    setup: Mapped[dict[str, Any]]
    """The journal's `setup` line: dataset, model, precision and attention in use."""
    command: Mapped[list[Any]]
    start_step: Mapped[int | None]
    end_step: Mapped[int | None]
    """The last step that was recorded, or that the end of an attempt without step lines states."""
    resumed_from: Mapped[str | None] = mapped_column(Text)
    setup_time_s: Mapped[float | None]
    wall_clock_s: Mapped[float | None]
    train_time_s: Mapped[float | None]
    """As the end states it; before an end, the sum of its step times."""
    eval_time_s: Mapped[float | None]
    final_loss: Mapped[float | None]
    steady_features: Mapped[int] = mapped_column(BigInteger)
    """This and the next two are sums over the steps that are no warm-up and have both counts and a time;
    `samples_per_s` and `tokens_per_s` are these divided."""
    steady_tokens: Mapped[int] = mapped_column(BigInteger)
    steady_time_s: Mapped[float]
    samples_per_s: Mapped[float | None]
    tokens_per_s: Mapped[float | None]
    peak_memory_bytes: Mapped[int | None] = mapped_column(BigInteger)
    em: Mapped[float | None]
    """Of the newest evaluation that has it, as `f1`."""
    f1: Mapped[float | None]


class _OfAttempt:
    """Key of a fact: the run, the attempt, and the line of the journal that said it."""

    # In front of the columns of each table, so that the primary key serves every query of a run.
    run_id: Mapped[str] = mapped_column(String(64), primary_key=True, sort_order=-3)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False, sort_order=-2)


class Step(_OfAttempt, Base):
    """One optimizer step; of a step redone after a crash the newest attempt counts."""

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


class Evaluation(_OfAttempt, Base):
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


class Checkpoint(_OfAttempt, Base):
    """A checkpoint that was committed (it may have been pruned since)."""

    __tablename__ = "checkpoints"

    line: Mapped[int] = mapped_column(primary_key=True)
    t: Mapped[float]
    step: Mapped[int]
    path: Mapped[str] = mapped_column(Text)
    bytes: Mapped[int | None] = mapped_column(BigInteger)
    save_time_s: Mapped[float | None]
    blocked_time_s: Mapped[float | None]
    reason: Mapped[str | None] = mapped_column(Text)


class Event(_OfAttempt, Base):
    """Anything worth a line: signals, resumes, skipped checkpoints, non-finite losses."""

    __tablename__ = "events"

    node_rank: Mapped[int] = mapped_column(primary_key=True)
    line: Mapped[int] = mapped_column(primary_key=True)
    t: Mapped[float]
    name: Mapped[str] = mapped_column(Text)
    message: Mapped[str | None] = mapped_column(Text)
    data: Mapped[dict[str, Any]]


class SystemSample(_OfAttempt, Base):
    """Use of one node every few seconds."""

    __tablename__ = "system_samples"
    __table_args__ = _CLUSTERED

    node_rank: Mapped[int] = mapped_column(primary_key=True)
    line: Mapped[int] = mapped_column(primary_key=True)
    t: Mapped[float]
    cpu_percent: Mapped[float | None]
    memory_bytes: Mapped[int | None] = mapped_column(BigInteger)
    gpus: Mapped[list[Any]]


class Profile(_OfAttempt, Base):
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
    """What a user added to a run, in order; the run's name, tags and note are the outcome."""

    __tablename__ = "annotations"

    run_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    line: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    t: Mapped[float]
    kind: Mapped[str] = mapped_column(String(16))
    """`name`, `tag`, `untag` or `note`."""
    value: Mapped[str] = mapped_column(Text)


class JournalFile(Base):
    """How far a journal file has been read: ingest goes on from there."""

    __tablename__ = "journal_files"

    path: Mapped[str] = mapped_column(Text, primary_key=True)
    """Relative to the runs directory."""
    num_lines: Mapped[int]
    last_n: Mapped[int]
    """The line number that the last line claimed; more than `num_lines` where lines are missing."""
    num_bytes: Mapped[int] = mapped_column(BigInteger)
