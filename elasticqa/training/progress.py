"""Progress of a run, which a checkpoint saves in its manifest."""

import math
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from elasticqa.config.batch_plan import BatchPlan


@dataclass(kw_only=True)
class Progress:
    """Position and totals of a run: a `Stateful` of plain values.

    No generator state is needed: dropout is seeded from (seed, step, rank), and features follow from (seed, step).
    """

    plan: BatchPlan
    step: int = 0
    """Optimizer steps done."""
    train_time_s: float = 0.0
    """Sum of the step times up to this step, including earlier attempts."""
    best_f1: float | None = None
    evaluated_step: int | None = None
    """The step of the last evaluation."""
    is_profiled: bool = False
    """This run has written a profiler trace."""
    began_at: float = field(default_factory=time.time)
    """Unix seconds when this attempt began."""
    last_losses: deque[float] = field(init=False)
    """Losses of the last epoch; their mean is the final loss."""
    _restored_train_time_s: float = 0.0
    _restored_wall_clock_s: float = 0.0

    def __post_init__(self) -> None:
        self.last_losses = deque(maxlen=self.plan.steps_per_epoch)

    @property
    def is_at_end(self) -> bool:
        """Whether the last step is done."""
        return self.step >= self.plan.num_steps

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return {
            "step": self.step,
            "samples_seen": self.plan.samples_seen(self.step),
            "train_time_s": self.train_time_s,
            "wall_clock_s": self._restored_wall_clock_s + time.time() - self.began_at,
            "best_f1": self.best_f1,
            "evaluated_step": self.evaluated_step,
            "is_profiled": self.is_profiled,
            "last_losses": list(self.last_losses),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        self.step = state["step"]
        self.train_time_s = self._restored_train_time_s = state["train_time_s"]
        self._restored_wall_clock_s = state["wall_clock_s"]
        self.best_f1 = state["best_f1"]
        self.evaluated_step = state.get("evaluated_step")
        self.is_profiled = state["is_profiled"]
        self.last_losses.extend(state["last_losses"])

    def totals(self) -> dict[str, Any]:
        """Return this attempt's totals as the journal's `end` line has them."""
        losses = [loss for loss in self.last_losses if math.isfinite(loss)]
        return {
            "step": self.step,
            "samples_seen": self.plan.samples_seen(self.step),
            "train_time_s": self.train_time_s - self._restored_train_time_s,
            "final_loss": sum(losses) / len(losses) if losses else None,
        }
