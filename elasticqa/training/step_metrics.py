"""Figures of the steps, read late: to ask a GPU for those of a step at once would be to wait for it."""

import math
import time
from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

from elasticqa.config.batch_plan import BatchPlan
from elasticqa.config.train_config import TrainConfig
from elasticqa.data.sampler import StepPlan, StepPlanner
from elasticqa.distributed.topology import Topology
from elasticqa.run.metrics import StepMetrics
from elasticqa.run.recorder import Recorder
from elasticqa.training.host_copy import to_host
from elasticqa.training.train_step import StepOutput


class NonFiniteLossError(RuntimeError):
    """The loss of a step is not finite; its update was skipped and no checkpoint holds it."""

    def __init__(self, metrics: StepMetrics, feature_ids: list[int]) -> None:
        shown = ", ".join(map(str, feature_ids[:32])) + (", ..." if len(feature_ids) > 32 else "")
        super().__init__(
            f"loss={metrics.loss} (gradient norm {metrics.grad_norm}) at step {metrics.step} is not finite: its update "
            f"was skipped and no checkpoint holds it; features {shown}; lower --learning-rate or look at these features"
        )
        self.step = metrics.step
        self.feature_ids = feature_ids


def memory_peaks(device: torch.device) -> dict[str, int | None]:
    """Return, as the fields of a step have it, the most memory that tensors took and that the allocator held on a GPU.

    Both are None on a CPU.
    """
    if device.type != "cuda":
        return {"peak_memory_bytes": None, "peak_reserved_bytes": None}
    # One reading for both, and of the nested form, which torch's own functions for each make anew and flatten.
    statistics = torch.cuda.memory_stats_as_nested_dict(device)
    return {
        "peak_memory_bytes": statistics["allocated_bytes"]["all"]["peak"],
        "peak_reserved_bytes": statistics["reserved_bytes"]["all"]["peak"],
    }


@dataclass(frozen=True)
class _Pending:
    """A step whose figures are still on the device: (loss, stop requests, gradient norm, loss scale)."""

    figures: Tensor
    is_copied: torch.cuda.Event | None
    plan: StepPlan
    learning_rate: float
    data_time_s: float
    is_warmup: bool


class StepFigures:
    """Takes what steps gave, and records their figures in order as they are read."""

    def __init__(
        self,
        config: TrainConfig,
        topology: Topology,
        plan: BatchPlan,
        planner: StepPlanner,
        recorder: Recorder,
        *,
        is_scaled: bool,
    ) -> None:
        """Begin without a step.

        Args:
            config: of the run.
            topology: of this attempt.
            plan: of the run.
            planner: that knows the features of a step.
            recorder: of this rank.
            is_scaled: the loss is scaled up, so that a gradient norm may overflow once in a while.
        """
        self._config = config
        self._topology = topology
        self._plan = plan
        self._planner = planner
        self._recorder = recorder
        self._is_scaled = is_scaled
        self._pending: deque[_Pending] = deque()
        self._clock = 0.0
        self._is_slowed = False
        self.is_stop_agreed = False
        """All ranks know that one of them was asked to stop."""
        self.train_time_s = 0.0
        """Sum of the step times on the way to this step, those of earlier attempts included."""
        self.last_losses: deque[float] = deque(maxlen=plan.steps_per_epoch)
        """Of one epoch, whose mean is the final loss."""

    def restart_clock(self) -> None:
        """Leave the time that has passed since the last reading out of the next step."""
        self._clock = time.perf_counter()

    def slow(self) -> None:
        """Count the next step that is read as one of the warm-up: the host did something else as well."""
        self._is_slowed = True

    def push(self, plan: StepPlan, output: StepOutput, learning_rate: float, *, is_warmup: bool) -> None:
        """Take a step that has been started."""
        self._is_slowed |= output.is_warmup
        on_host, is_copied = to_host(output.figures)
        self._pending.append(_Pending(on_host, is_copied, plan, learning_rate, output.data_time_s, is_warmup))

    def read(self, lag: int) -> None:
        """Record all steps but the newest ``lag``; every rank must call this alike.

        Raises:
            NonFiniteLossError: on every rank, at the same step.
        """
        while len(self._pending) > lag:
            pending = self._pending.popleft()
            if pending.is_copied is not None:
                pending.is_copied.synchronize()
            loss, stop, norm, scale = pending.figures.tolist()
            now = time.perf_counter()
            step_time_s, self._clock = now - self._clock, now
            metrics = self._metrics(pending, loss, norm, step_time_s)
            # What a later step compiled or captured on the host lies in the time that passed until this reading.
            self._is_slowed = False
            self.train_time_s += step_time_s
            self.last_losses.append(loss)
            self._recorder.step(metrics)
            self.is_stop_agreed |= stop > 0
            is_overflow = self._is_scaled and scale >= 1 and math.isfinite(loss)
            if not math.isfinite(loss) or not (math.isfinite(norm) or is_overflow):
                _, batch = self._planner.global_batch(pending.plan.step)
                raise NonFiniteLossError(metrics, batch.tolist())

    def _metrics(self, pending: _Pending, loss: float, norm: float, step_time_s: float) -> StepMetrics:
        plan, device = pending.plan, self._topology.device
        return StepMetrics(
            step=plan.step + 1,
            epoch=plan.epoch,
            samples_seen=self._plan.samples_seen(plan.step + 1),
            loss=loss,
            grad_norm=norm,
            learning_rate=pending.learning_rate,
            step_time_s=step_time_s,
            data_time_s=pending.data_time_s,
            num_features=plan.num_features,
            num_tokens=plan.num_tokens,
            num_padded_tokens=plan.num_features * self._config.max_length,
            is_warmup=pending.is_warmup or self._is_slowed,
            max_rank_tokens=plan.max_share_tokens,
            mean_rank_tokens=plan.num_tokens / self._topology.world_size,
            **memory_peaks(device),
        )
