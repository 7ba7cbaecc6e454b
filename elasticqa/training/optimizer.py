"""AdamW with decay groups, the learning rate as a function of the step, and the update that may be skipped."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate

from elasticqa.config.train_config import Precision, TrainConfig
from elasticqa.distributed.torch_internals import update_loss_scale_
from elasticqa.models.kernels.adamw import AdamWKernel

INITIAL_LOSS_SCALE = 2.0**14
"""torch's GradScaler starts at 2**16, at which BERT's first steps overflow."""


def build_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """Return fused AdamW; vectors (biases, LayerNorm) are not decayed."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(0.9, 0.999), eps=1e-8, fused=True)


def learning_rate_at(step: int, num_steps: int, config: TrainConfig) -> float:
    """Return the learning rate of the step numbered from 0: linear warm-up, then linear decay to 0.

    >>> config = TrainConfig(learning_rate=1.0, warmup_ratio=0.2)
    >>> [learning_rate_at(step, 10, config) for step in (0, 1, 2, 6, 10)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    warmup_steps = round(config.warmup_ratio * num_steps)
    if step < warmup_steps:
        return config.learning_rate * step / warmup_steps
    return config.learning_rate * max(0.0, (num_steps - step) / max(1, num_steps - warmup_steps))


class Updater:
    """Clip, unscale and update without reading a value from the device.

    A step whose global gradient norm or loss is not finite changes nothing: fused AdamW reads the flag on the device.
    With fp16 the loss is scaled up and the scale follows overflows (Micikevicius et al. 2018, arXiv:1710.03740, section
    3.2); with other precisions the scale stays 1.
    """

    def __init__(
        self, optimizer: torch.optim.AdamW, config: TrainConfig, precision: Precision, device: torch.device
    ) -> None:
        self._optimizer = optimizer
        self._max_grad_norm = config.max_grad_norm
        self._is_scaled = precision == "fp16"
        self.scale = torch.full((), INITIAL_LOSS_SCALE if self._is_scaled else 1.0, device=device)
        self.kernel: AdamWKernel | None = None
        """If set, `step` launches this kernel instead of the optimizer's step (in a CUDA graph capture)."""
        self._growth = torch.zeros((), dtype=torch.int32, device=device)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the loss scale and the steps since it last changed.

        Other precisions save the values of a new fp16 run, so that a run can change to or from fp16 when it resumes.
        """
        if self._is_scaled:
            return {"scale": self.scale, "growth": self._growth}
        return {"scale": torch.full_like(self.scale, INITIAL_LOSS_SCALE), "growth": torch.zeros_like(self._growth)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue with a loss scale that `state_dict` returned."""
        if self._is_scaled:
            self.scale.copy_(state["scale"])
            self._growth.copy_(state["growth"])

    def make_state(self) -> None:
        """Create the state that AdamW creates in its first step, without an update; gradients must exist."""
        self._optimizer.grad_scale = None  # type: ignore[attr-defined]
        self._optimizer.found_inf = _like(self._gradients(), torch.ones_like(self.scale))  # type: ignore[attr-defined]
        self._optimizer.step()

    def step(self, learning_rate: float | Tensor, loss: Tensor) -> Tensor:
        """Apply the update and return the gradient norm before clipping, a scalar on the device.

        The loss is that of the global batch, unscaled; a value that is not finite skips the update. A captured step
        reads the learning rate from a tensor on the device.
        """
        gradients = self._gradients()
        total = torch.nn.utils.get_total_norm(gradients)
        norm = (total.full_tensor() if isinstance(total, DTensor) else total) / self.scale
        is_bad = ~(torch.isfinite(norm) & torch.isfinite(loss))
        divisor = torch.clamp((norm + 1e-6) / self._max_grad_norm, min=1.0) * self.scale
        found_inf = is_bad.float()
        if self.kernel is not None:
            assert isinstance(learning_rate, Tensor)
            self.kernel.step(learning_rate, divisor, found_inf)
        else:
            if isinstance(learning_rate, Tensor):
                learning_rate = _like(gradients, learning_rate)
            for group in self._optimizer.param_groups:
                group["lr"] = learning_rate
            # Fused AdamW divides gradients by ``grad_scale`` and skips the update if ``found_inf`` is 1, without an
            # extra pass.
            self._optimizer.grad_scale = _like(gradients, divisor)  # type: ignore[attr-defined]
            self._optimizer.found_inf = _like(gradients, found_inf)  # type: ignore[attr-defined]
            self._optimizer.step()
        if self._is_scaled:
            update_loss_scale_(self.scale, self._growth, found_inf, 2.0, 0.5, 2000)
        return norm

    def _gradients(self) -> list[Tensor]:
        parameters = [p for group in self._optimizer.param_groups for p in group["params"]]
        return [p.grad for p in parameters if p.grad is not None]


def _like(gradients: list[Tensor], value: Tensor) -> Tensor:
    """Return the scalar as a DTensor if the gradients are DTensors: operators do not take a mix."""
    first = gradients[0]
    if isinstance(first, DTensor):
        return DTensor.from_local(value, first.device_mesh, [Replicate()] * first.device_mesh.ndim)
    return value
