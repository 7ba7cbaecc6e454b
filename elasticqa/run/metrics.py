"""The metrics of a step and of an evaluation."""

from dataclasses import dataclass


@dataclass(frozen=True)
class StepMetrics:
    """One optimizer step; the fields are the columns of table ``steps`` and the keys of the journal's line."""

    step: int
    epoch: int
    samples_seen: int
    loss: float
    grad_norm: float
    learning_rate: float
    step_time_s: float
    data_time_s: float
    num_features: int
    num_tokens: int
    num_padded_tokens: int
    peak_memory_bytes: int | None
    is_warmup: bool
    max_rank_tokens: int | None = None
    """Tokens, without padding, of the rank with the most."""
    mean_rank_tokens: float | None = None
    peak_reserved_bytes: int | None = None
    """Peak of the memory that the allocator reserved."""


@dataclass(frozen=True)
class Evaluation:
    """EM and F1 in percent over the whole split."""

    step: int
    split: str
    em: float
    f1: float
    loss: float | None
    num_examples: int
    num_features: int
    eval_time_s: float
    predictions: str | None
