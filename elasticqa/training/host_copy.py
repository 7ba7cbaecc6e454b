"""Results on their way from the device to the host, for whom nobody waits yet."""

import torch
from torch import Tensor


def to_host(values: Tensor) -> tuple[Tensor, torch.cuda.Event | None]:
    """Start the copy of values to the host; the event tells when it is done. On a CPU they are there already."""
    if values.device.type == "cpu":
        return values, None
    on_host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    on_host.copy_(values, non_blocking=True)
    is_copied = torch.cuda.Event()
    is_copied.record()
    return on_host, is_copied
