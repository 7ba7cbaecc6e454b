"""Step speed and model FLOPs utilization (MFU) of runs, and the peaks of known devices."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from db.models import Attempt

_TERA = 1e12
_SUMMARY = ("step_time_p50_s", "step_time_p95_s", "data_share", "padding_factor", "token_imbalance")

# Dense matrix multiplication with fp32 accumulation, at the boost clock of the data sheet; fp32 without TF32, as in
# training here. Names as the driver gives them; a slice of a device (MIG) has another name and is not listed.
# Sources: NVIDIA's data sheets of A100, H100 (HBM3 is the SXM board), H200, L4, T4 and V100, where values with
# sparsity are halved; NVIDIA's white papers of the architectures Ampere GA102, Ada and RTX Blackwell, appendix A.
_PEAKS: dict[str, dict[str, float]] = {
    "NVIDIA A100-PCIE-40GB": {"bf16": 312, "fp16": 312, "fp32": 19.5},
    "NVIDIA A100-SXM4-40GB": {"bf16": 312, "fp16": 312, "fp32": 19.5},
    "NVIDIA A100-SXM4-80GB": {"bf16": 312, "fp16": 312, "fp32": 19.5},
    "NVIDIA A100 80GB PCIe": {"bf16": 312, "fp16": 312, "fp32": 19.5},
    "NVIDIA H100 80GB HBM3": {"bf16": 989.4, "fp16": 989.4, "fp32": 66.9},
    "NVIDIA H100 PCIe": {"bf16": 756, "fp16": 756, "fp32": 51.2},
    "NVIDIA H200": {"bf16": 989.4, "fp16": 989.4, "fp32": 66.9},
    "NVIDIA L4": {"bf16": 121, "fp16": 121, "fp32": 30.3},
    "Tesla T4": {"fp16": 65, "fp32": 8.1},
    "Tesla V100-SXM2-16GB": {"fp16": 125, "fp32": 15.7},
    "Tesla V100-SXM2-32GB": {"fp16": 125, "fp32": 15.7},
    "NVIDIA GeForce RTX 3090": {"bf16": 71, "fp16": 71, "fp32": 35.6},
    "NVIDIA GeForce RTX 4090": {"bf16": 165.2, "fp16": 165.2, "fp32": 82.6},
    "NVIDIA GeForce RTX 5070": {"bf16": 61.7, "fp16": 61.7, "fp32": 30.9},
    "NVIDIA GeForce RTX 5090": {"bf16": 209.5, "fp16": 209.5, "fp32": 104.8},
}


@dataclass(frozen=True, kw_only=True)
class StepSpeed:
    """Summary of an attempt's newest steps (at most a thousand) without warm-up; None is unknown."""

    num_steps: int
    step_time_p50_s: float | None
    step_time_p95_s: float | None
    data_share: float | None
    """Data time over step time, a fraction."""
    padding_factor: float | None
    """Tokens of a batch padded to the full length over real ones; 1 or more."""
    token_imbalance: float | None
    """Tokens of the fullest rank over those of the mean rank; 1 or more."""
    precision: str | None
    """Precision in use, from the newest attempt's `setup` line."""
    flops_per_token: float | None
    """Forward and backward, without attention scores."""


@dataclass(frozen=True, kw_only=True)
class Utilization:
    """Each field is None if part of its formula is unknown."""

    padded_tokens_per_s: float | None
    """Throughput if the same time had trained batches padded to the full length."""
    mfu: float | None
    """Model FLOPs utilization of real tokens, a fraction of the peak of all devices."""
    mfu_padded: float | None


def step_speed_of(session: Session, run_id: str) -> StepSpeed:
    """Return the step speed of a run."""
    return step_speeds_of(session, [run_id])[run_id]


def step_speeds_of(session: Session, run_ids: Sequence[str]) -> dict[str, StepSpeed]:
    """Return the step speed of each run, from the summaries of ingest; reads no steps."""
    columns = (getattr(Attempt, name) for name in ("run_id", "setup", "num_timed_steps", *_SUMMARY))
    statement = select(*columns).where(Attempt.run_id.in_(run_ids)).order_by(Attempt.run_id, Attempt.attempt.desc())
    attempts: dict[str, list[Any]] = {run_id: [] for run_id in run_ids}
    for row in session.execute(statement):
        attempts[row.run_id].append(row)
    return {run_id: _speed(rows) for run_id, rows in attempts.items()}


def _speed(attempts: Sequence[Any]) -> StepSpeed:
    """Return the step speed from a run's attempts, the newest first."""
    timed = next((row for row in attempts if row.num_timed_steps), None)
    setup: dict[str, Any] = attempts[0].setup if attempts else {}
    model = setup.get("model")
    flops: Any = model.get("flops_per_token") if isinstance(model, dict) else None
    precision = setup.get("precision")
    return StepSpeed(
        num_steps=timed.num_timed_steps if timed else 0,
        **{name: getattr(timed, name, None) for name in _SUMMARY},
        precision=precision if isinstance(precision, str) else None,
        flops_per_token=float(flops) if type(flops) in (int, float) and 0 < flops < 1e30 else None,
    )


def utilization(
    tokens_per_s: float | None, speed: StepSpeed, world_size: int | None, device_name: str | None
) -> Utilization:
    """Return the utilization of a run; `tokens_per_s` counts real tokens over all ranks, without warm-up steps."""
    padded_per_s = None
    if tokens_per_s is not None and speed.padding_factor is not None:
        padded_per_s = tokens_per_s * speed.padding_factor
    peak = peak_flops_per_s(device_name, speed.precision)

    def share(per_s: float | None) -> float | None:
        if per_s is None or peak is None or speed.flops_per_token is None or not world_size:
            return None
        return mfu(per_s, speed.flops_per_token, world_size, peak)

    return Utilization(padded_tokens_per_s=padded_per_s, mfu=share(tokens_per_s), mfu_padded=share(padded_per_s))


def peak_flops_per_s(device_name: str | None, precision: str | None) -> float | None:
    """Return the dense peak of one device in a precision, or None if unknown.

    >>> peak_flops_per_s("Tesla T4", "fp16"), peak_flops_per_s("Tesla T4", "bf16")
    (65000000000000.0, None)
    """
    peak = _PEAKS.get(device_name or "", {}).get(precision or "")
    return None if peak is None else peak * _TERA


def mfu(tokens_per_s: float, flops_per_token: float, world_size: int, peak_flops_per_s: float) -> float:
    """Return model FLOPs utilization, a fraction of the peak of all devices.

    Args:
        tokens_per_s: over all ranks, without warm-up steps.
        flops_per_token: forward and backward of the model, without recomputation.
        world_size: number of devices.
        peak_flops_per_s: dense peak of one device in the training precision.

    Source: Chowdhery et al. 2022, PaLM, appendix B (arXiv:2204.02311), without its term for attention.

    >>> mfu(1e5, 1e9, 2, 1e14)
    0.5
    """
    return tokens_per_s * flops_per_token / (world_size * peak_flops_per_s)
