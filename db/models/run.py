"""The table of runs."""

from typing import Any

from sqlalchemy import BigInteger, Index, String, Text, false
from sqlalchemy.orm import Mapped, mapped_column

from db.models.base import Base

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
        # SQLite filters, counts and sorts with this index alone, without the wide rows. In PostgreSQL it contains no
        # row: an index there refuses texts of some thousand characters, and would refuse such runs.
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
    """Equal for repeats: covers config without seed, name and resume; provenance; every world size and device of the
    attempts."""
    status: Mapped[str] = mapped_column(String(16))
    """Status of the newest attempt: running, finished, failed or preempted; see `db.queries.status` for `lost`."""
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
    """From the start of the first attempt to the end of the last, including waits; None before the end."""
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
