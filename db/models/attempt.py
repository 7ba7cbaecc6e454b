"""The table of attempts."""

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from db.models.base import Base


class Attempt(Base):
    """One life of a process group."""

    __tablename__ = "attempts"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.run_id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    node_rank: Mapped[int]
    """The lowest node whose journal was read; it gave these facts."""
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
    """From a reported or imported result; notes by users are annotations."""
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
    """This and the next two columns are sums over the steps without warm-up that have both counts and a time;
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
    """Number of its newest steps, at most a thousand, without warm-up and with a time; None before the first.
    The next five columns summarize these steps."""
    step_time_p50_s: Mapped[float | None]
    step_time_p95_s: Mapped[float | None]
    data_share: Mapped[float | None]
    """Data time over step time, a fraction."""
    padding_factor: Mapped[float | None]
    """Tokens of a batch padded to the full length over real ones; 1 or more."""
    token_imbalance: Mapped[float | None]
    """Tokens of the fullest rank over those of the mean rank; 1 or more."""
    phases: Mapped[dict[str, Any]] = mapped_column(server_default="{}")
    """Seconds by name, other than steps, evaluations and checkpoints, from the `setup` and `end` lines."""
