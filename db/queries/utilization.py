"""How much of its devices' peak a run used, by real tokens and by padded ones."""

from dataclasses import dataclass

from db.queries.peaks import mfu, peak_flops_per_s
from db.queries.speed import StepSpeed


@dataclass(frozen=True, kw_only=True)
class Utilization:
    """None where a part of the formula is not known."""

    padded_tokens_per_s: float | None
    """Of batches padded to the full length, had they been trained in the same time."""
    mfu: float | None
    """Model FLOPs utilization of real tokens, a fraction of the peak of all devices."""
    mfu_padded: float | None


def utilization(
    tokens_per_s: float | None, speed: StepSpeed, world_size: int | None, device_name: str | None
) -> Utilization:
    """Return the utilization of a run.

    Args:
        tokens_per_s: real ones over all ranks, without warm-up steps.
        speed: of the run: padding, precision and FLOPs a token.
        world_size: number of devices.
        device_name: as the driver gives it.
    """
    padded_per_s = None
    if tokens_per_s is not None and speed.padding_factor is not None:
        padded_per_s = tokens_per_s * speed.padding_factor
    peak = peak_flops_per_s(device_name, speed.precision)

    def share(per_s: float | None) -> float | None:
        if per_s is None or peak is None or speed.flops_per_token is None or not world_size:
            return None
        return mfu(per_s, speed.flops_per_token, world_size, peak)

    return Utilization(padded_tokens_per_s=padded_per_s, mfu=share(tokens_per_s), mfu_padded=share(padded_per_s))
