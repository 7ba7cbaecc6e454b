"""AdamW for CUDA-graph steps: one kernel launch updates all weights of a rank and the state of torch's optimizer."""

import math

import torch
from torch import Tensor
from torch.optim import AdamW

from elasticqa.distributed.shards import local_part
from elasticqa.distributed.torch_internals import foreach_add_, foreach_sub_
from elasticqa.models.kernels import triton_kernels

_KERNELS = triton_kernels("triton_adamw")

_CHUNK, _WARPS = 512, 4
"""Four weights per thread, loaded with one instruction; more halve the speed (benchmarks/README.md)."""
_ALIGNMENT = 16


class AdamWKernel:
    """The optimizer update of one CUDA graph; it reads gradients at the addresses that they have during the capture.

    Faster than torch's fused AdamW, which also writes scaled gradients back: a seventh more memory traffic.
    """

    def __init__(self, optimizer: AdamW) -> None:
        """Split the weights into chunks; the optimizer must have its state."""
        groups = [(group, p) for group in optimizer.param_groups for p in group["params"] if p in optimizer.state]
        self._parameters = [p for _, p in groups]
        self._states = [optimizer.state[p] for p in self._parameters]
        self._steps = [state["step"] for state in self._states]
        self._betas, self._epsilon = optimizer.defaults["betas"], optimizer.defaults["eps"]
        device = self._parameters[0].device
        sizes = torch.tensor([local_part(p).numel() for p in self._parameters])
        counts = -(-sizes // _CHUNK)
        tensors = torch.repeat_interleave(torch.arange(len(sizes)), counts)
        firsts = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
        offsets = (torch.arange(len(tensors)) - firsts) * _CHUNK
        decays = torch.tensor([group["weight_decay"] for group, _ in groups], dtype=torch.float32, device=device)
        self._layout = [*(each.to(device, torch.int32) for each in (tensors, offsets, sizes)), decays]
        self._logs = torch.tensor([math.log(beta) for beta in self._betas], device=device)
        self._addresses = torch.zeros((4, len(self._parameters)), dtype=torch.int64, device=device)
        self._captured = self._addresses.cpu()

    def warm_up(self) -> None:
        """Compile the kernel by launching it without effect; Triton cannot compile during a capture."""
        one = torch.ones((), device=self._addresses.device)
        for is_aligned in (True, False):
            self._launch(one, one.repeat(2), one, one, is_aligned=is_aligned)

    def step(self, learning_rate: Tensor, divisor: Tensor, skip: Tensor) -> None:
        """Launch the update during a capture; call `bind_addresses` after the capture. 1 in ``skip`` skips the update.

        All are scalars on the device; ``divisor`` is that of the gradients.
        """
        # Pass a list: the overload for a single tensor synchronizes with the device.
        foreach_add_(self._steps, 1)
        foreach_sub_(self._steps, [skip] * len(self._steps))
        # 1 - beta**step; expm1 avoids cancellation in fp32.
        corrections = -torch.expm1(self._steps[0] * self._logs)
        rows = [
            self._parameters,
            [p.grad for p in self._parameters],
            [state["exp_avg"] for state in self._states],
            [state["exp_avg_sq"] for state in self._states],
        ]
        self._captured = torch.tensor([[local_part(each).data_ptr() for each in row] for row in rows])
        is_aligned = not bool((self._captured % _ALIGNMENT).any())
        self._launch(learning_rate, corrections, divisor, skip, is_aligned=is_aligned)

    def _launch(
        self, learning_rate: Tensor, corrections: Tensor, divisor: Tensor, skip: Tensor, *, is_aligned: bool
    ) -> None:
        tensors, offsets, sizes, decays = self._layout
        _KERNELS.adamw_update[(len(tensors),)](
            self._addresses, tensors, offsets, sizes, decays, learning_rate, corrections, divisor, skip,
            len(self._parameters), *self._betas, self._epsilon, CHUNK=_CHUNK, IS_ALIGNED=is_aligned, num_warps=_WARPS,
        )  # fmt: skip

    def bind_addresses(self) -> None:
        """Write the addresses of the tensors to where the captured update reads them."""
        self._addresses.copy_(self._captured)
