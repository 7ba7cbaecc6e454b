"""Metrics of the steps, read some steps later so that the host does not wait for the GPU."""

import math
import time
from dataclasses import dataclass, field

import torch

from elasticqa.config.train_config import TrainConfig
from elasticqa.data.sampler import Sampler, StepBatch
from elasticqa.distributed.topology import Topology
from elasticqa.run.metrics import StepMetrics
from elasticqa.run.recorder import Recorder
from elasticqa.training.host_copy import HostCopies
from elasticqa.training.progress import Progress
from elasticqa.training.train_step import StepOutput

WARMUP_STEPS = 5
"""Steps after a start that do not count for throughput: allocator, autotuning and caches warm up."""


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
    """Return the peaks of allocated and reserved GPU memory as the fields of a step; both None on a CPU."""
    if device.type != "cuda":
        return {"peak_memory_bytes": None, "peak_reserved_bytes": None}
    # Read both peaks with one call: `torch.cuda.max_memory_*` would build and flatten this dict once each.
    statistics = torch.cuda.memory_stats_as_nested_dict(device)
    return {
        "peak_memory_bytes": statistics["allocated_bytes"]["all"]["peak"],
        "peak_reserved_bytes": statistics["reserved_bytes"]["all"]["peak"],
    }


@dataclass(frozen=True)
class _Pending:
    """A step whose scalars are being copied to the host."""

    step_batch: StepBatch
    learning_rate: float
    data_time_s: float
    is_warmup: bool


@dataclass(kw_only=True)
class MetricsQueue:
    """Takes the outputs of steps, and records their metrics in order once they are on the host."""

    config: TrainConfig
    topology: Topology
    progress: Progress
    """Updated with the losses and times that are read."""
    sampler: Sampler
    recorder: Recorder
    is_scaled: bool
    """Whether the loss is scaled (fp16): an occasional gradient norm that is not finite is then no error."""
    _copies: HostCopies[_Pending] = field(init=False, default_factory=HostCopies)
    _clock: float = field(init=False, default=0.0)
    _num_pushed: int = field(init=False, default=0)
    _is_slowed: bool = field(init=False, default=False)

    def restart_clock(self) -> None:
        """Do not count the time since the last reading as time of the next step."""
        self._clock = time.perf_counter()

    def mark_slow(self) -> None:
        """Count the next step that is read as warm-up: the host did other work as well."""
        self._is_slowed = True

    def push(self, step_batch: StepBatch, output: StepOutput, learning_rate: float, *, is_profiled: bool) -> None:
        """Take a step that has been started; one under the profiler counts as warm-up."""
        self._num_pushed += 1
        self._is_slowed |= output.is_warmup
        is_warmup = self._num_pushed <= WARMUP_STEPS or is_profiled
        self._copies.push(_Pending(step_batch, learning_rate, output.data_time_s, is_warmup), output.scalars)

    def read(self, lag: int) -> float:
        """Record all steps but the newest ``lag``, and return their votes to stop; every rank must use the same lag.

        Raises:
            NonFiniteLossError: on every rank, at the same step.
        """
        votes = 0.0
        for pending, scalars in self._copies.read(lag):
            loss, stop_votes, norm, scale = scalars.tolist()
            now = time.perf_counter()
            step_time_s, self._clock = now - self._clock, now
            metrics = self._metrics(pending, loss, norm, step_time_s)
            # The time until this reading includes a compilation or capture of a later step on the host.
            self._is_slowed = False
            self.progress.train_time_s += step_time_s
            self.progress.last_losses.append(loss)
            self.recorder.log_step(metrics)
            votes += stop_votes
            is_overflow = self.is_scaled and scale >= 1 and math.isfinite(loss)
            if not math.isfinite(loss) or not (math.isfinite(norm) or is_overflow):
                _, batch = self.sampler.global_batch(pending.step_batch.step)
                raise NonFiniteLossError(metrics, batch.tolist())
        return votes

    def _metrics(self, pending: _Pending, loss: float, norm: float, step_time_s: float) -> StepMetrics:
        step_batch = pending.step_batch
        return StepMetrics(
            step=step_batch.step + 1,
            epoch=step_batch.epoch,
            samples_seen=self.progress.plan.samples_seen(step_batch.step + 1),
            loss=loss,
            grad_norm=norm,
            learning_rate=pending.learning_rate,
            step_time_s=step_time_s,
            data_time_s=pending.data_time_s,
            num_features=step_batch.num_features,
            num_tokens=step_batch.num_tokens,
            num_padded_tokens=step_batch.num_features * self.config.max_length,
            is_warmup=pending.is_warmup or self._is_slowed,
            max_rank_tokens=step_batch.max_share_tokens,
            mean_rank_tokens=step_batch.num_tokens / self.topology.world_size,
            **memory_peaks(self.topology.device),
        )
