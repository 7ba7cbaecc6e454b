"""AdamW over all weights of a rank in one launch, for a captured step: the optimizer's state stays where it is."""

import importlib
import importlib.util
import math
from typing import Any

import torch
from torch import Tensor
from torch.optim import AdamW

from elasticqa.distributed.shards import local_part

_KERNELS: Any = importlib.import_module(f"{__package__}.triton_adamw") if importlib.util.find_spec("triton") else None

_CHUNK, _WARPS = 512, 4
"""Four weights a thread, which it reads at once: more of them halve the speed (benchmarks/README.md)."""
_ALIGNMENT = 16


class WeightKernel:
    """One captured update; the addresses of its gradients are those of the capture.

    Fused AdamW of torch writes gradients back that it has scaled, a seventh of all that it moves.
    """

    def __init__(self, optimizer: AdamW) -> None:
        """Lay out the work; the optimizer has its state."""
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
        places = (torch.arange(len(tensors)) - firsts) * _CHUNK
        self._layout = [
            each.to(device, dtype)
            for each, dtype in (
                (tensors, torch.int32),
                (places, torch.int32),
                (sizes, torch.int32),
                (torch.tensor([group["weight_decay"] for group, _ in groups]), torch.float32),
            )
        ]
        self._logs = torch.tensor([math.log(beta) for beta in self._betas], device=device)
        self._addresses = torch.zeros((4, len(self._parameters)), dtype=torch.int64, device=device)
        self._captured = self._addresses.cpu()

    def rehearse(self) -> None:
        """Launch without effect before a capture, which cannot hold what Triton does to compile."""
        one = torch.ones((), device=self._addresses.device)
        for is_aligned in (True, False):
            self._launch(one, one.repeat(2), one, one, is_aligned=is_aligned)

    def step(self, learning_rate: Tensor, divisor: Tensor, verdict: Tensor) -> None:
        """Launch the update, inside a capture; `bind` must follow it.

        Args:
            learning_rate: scalar on the device, as are the others.
            divisor: of the gradients.
            verdict: 1 where nothing may change, else 0.
        """
        # By lists: the overload for one tensor waits for the device to read it.
        torch._foreach_add_(self._steps, 1)
        torch._foreach_sub_(self._steps, [verdict] * len(self._steps))
        # 1 - beta**step, without the cancellation in fp32.
        corrections = -torch.expm1(self._steps[0] * self._logs)
        rows = [
            self._parameters,
            [p.grad for p in self._parameters],
            [state["exp_avg"] for state in self._states],
            [state["exp_avg_sq"] for state in self._states],
        ]
        self._captured = torch.tensor([[local_part(each).data_ptr() for each in row] for row in rows])
        is_aligned = not bool((self._captured % _ALIGNMENT).any())
        self._launch(learning_rate, corrections, divisor, verdict, is_aligned=is_aligned)

    def _launch(
        self, learning_rate: Tensor, corrections: Tensor, divisor: Tensor, verdict: Tensor, *, is_aligned: bool
    ) -> None:
        tensors, places, sizes, decays = self._layout
        _KERNELS.adamw_update[(len(tensors),)](
            self._addresses, tensors, places, sizes, decays, learning_rate, corrections, divisor, verdict,
            len(self._parameters), *self._betas, self._epsilon, CHUNK=_CHUNK, IS_ALIGNED=is_aligned, num_warps=_WARPS,
        )  # fmt: skip

    def bind(self) -> None:
        """Tell the captured update where its tensors lie."""
        self._addresses.copy_(self._captured)
