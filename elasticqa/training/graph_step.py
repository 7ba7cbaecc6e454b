"""Whole training steps as CUDA graphs, one for each size of a share: the host only says which one runs next."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import AdamW

from elasticqa.data.micro_batch import MicroBatch
from elasticqa.data.prefetcher import Ahead
from elasticqa.data.sampler import Extent, StepPlan, StepPlanner
from elasticqa.errors import DoesNotFitError
from elasticqa.models.kernels.adamw import WeightKernel
from elasticqa.models.parallelize import is_sharded, set_gradient_sync
from elasticqa.training.optimizer import Updater
from elasticqa.training.reducer import GradientExchange
from elasticqa.training.rng import seed_step
from elasticqa.training.static_inputs import BatchSize, StaticBatch, fed_ids, fill, token_quantum
from elasticqa.training.train_step import EagerEngine, StepOutput

FIRST_PASSES = 12
"""Passes before the first capture: DDP times its first ten on the device, which a capture forbids."""
PASSES = 2
"""Passes before any other capture: libraries allocate and compile in the first."""


@dataclass(frozen=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    batch: StaticBatch
    figures: Tensor
    kernel: WeightKernel | None
    """Holds tensors that the graph reads."""


class CapturedEngine:
    """Replays steps of packed batches; a step that has no graph runs eagerly.

    Without a graph are steps of several micro-batches, and the last of an epoch where it is smaller than the others.
    The current stream must be the one that the model was wrapped on, and not the default stream.
    """

    def __init__(
        self,
        eager: EagerEngine,
        *,
        global_batch_size: int,
        micro_batch_size: int,
        max_length: int,
        has_weight_kernel: bool,
    ) -> None:
        self.model = eager.model
        self.optimizer = eager.optimizer
        self.updater = eager.updater
        self.precision = eager.precision
        self._eager = eager
        self._topology = eager.topology
        self._global_batch_size = global_batch_size
        self._micro_batch_size = micro_batch_size
        self._max_length = max_length
        self._has_weight_kernel = has_weight_kernel
        deviation = float(eager.features.lengths.std())
        self._quantum = token_quantum(deviation, global_batch_size, self._topology.world_size)
        self._learning_rate = torch.zeros((), device=self._topology.device)
        self._captured: dict[int, _Captured] = {}
        is_exchanged = self._topology.world_size > 1 and not is_sharded(self.model)
        self._exchange = GradientExchange(list(self.model.parameters())) if is_exchanged else None
        self._pool = torch.cuda.graph_pool_handle()
        self._ahead: Ahead[Tensor | list[MicroBatch]] = Ahead(self._make)

    def prime(self, step: int) -> None:
        """Prepare for the first step, numbered from 0; every rank must call this."""
        self._eager.prime(step)

    def look_ahead(self, planner: StepPlanner) -> None:
        """Make batches of the planner's steps ahead of time, until closed."""
        self._ahead.follow(planner, self._topology.device)

    def run(self, plan: StepPlan, learning_rate: float, *, wants_stop: bool) -> StepOutput:
        """Start one step; every rank must call this.

        Raises:
            DoesNotFitError: on every rank, when one has no memory for the step; weights are as they were.
            NoMemoryHereError: on that rank only, in the middle of an exchange.
        """
        began = time.perf_counter()
        content = self._ahead.take(plan)
        data_time_s = time.perf_counter() - began
        if isinstance(content, list):
            return self._eager.compute(plan, content, learning_rate, wants_stop=wants_stop, data_time_s=data_time_s)
        size, num_tokens = self._size(plan), self.num_tokens(plan)
        is_new = num_tokens not in self._captured
        if is_new:
            self._captured[num_tokens] = self._capture(size, content, plan.largest)
        captured = self._captured[num_tokens]
        captured.batch.load(content, wants_stop=wants_stop)
        self._learning_rate.fill_(learning_rate)
        # A replay draws from the generator's state of now, as an eager step does.
        seed_step(self._eager.seed, plan.step, self._topology.rank)
        captured.graph.replay()
        return StepOutput(captured.figures, fed_ids(content, size), data_time_s, is_warmup=is_new)

    def _make(self, plan: StepPlan) -> Tensor | list[MicroBatch]:
        """Return what a step reads: of a fixed size, or micro-batches where it has no graph."""
        if len(plan.micro_batches) > 1 or plan.num_features < self._global_batch_size:
            return self._eager.batches(plan)
        return fill(self._eager.features, plan.micro_batches[0], self._size(plan), plan.num_features)

    def _size(self, plan: StepPlan) -> BatchSize:
        return BatchSize.of(self.num_tokens(plan), self._micro_batch_size, self._max_length)

    def num_tokens(self, plan: StepPlan) -> int:
        """Return to how many tokens a step is filled up: all ranks replay the size of the largest share.

        Their graphs hold the same exchange of gradients.
        """
        return -(-plan.max_share_tokens // self._quantum) * self._quantum

    def close(self) -> None:
        """Free the graphs, before the process group goes: it waits for graphs that hold its communicator."""
        self._ahead.close()
        self._free()

    def _free(self) -> None:
        torch.cuda.synchronize(self._topology.device)
        for captured in self._captured.values():
            captured.graph.reset()
        self._captured.clear()

    def _capture(self, size: BatchSize, content: Tensor, largest: Extent) -> _Captured:
        """Return the graph of a step of the size; weights and state of the optimizer stay as they are.

        Args:
            size: of the graph.
            content: that is computed on the way.
            largest: share of any rank, without what fills it up: what is told and halved where it does not fit.

        Raises:
            DoesNotFitError: on every rank, when one has no memory for it; then no graph is left.
            NoMemoryHereError: on that rank only, in the middle of an exchange.
        """
        batch = StaticBatch(size, self._topology.device)
        batch.load(content, wants_stop=False)
        guard = self._eager.guard
        try:
            # Sharded weights are gathered in every pass: there is none without exchange.
            if not is_sharded(self.model):
                guard.attempt(lambda: self._pass(batch, is_exchanged=False), largest)
            for _ in range(PASSES if self._captured else FIRST_PASSES):
                guard.attempt_exchanging(lambda: self._pass(batch, is_exchanged=True), largest)
            # Whoever fails in the middle leaves FSDP in the middle of a pass: nothing to go on from.
            attempt = guard.attempt_exchanging if is_sharded(self.model) else guard.attempt
            return attempt(lambda: self._record(batch), largest)
        except DoesNotFitError:
            self.optimizer.zero_grad()
            self._free()
            raise

    def _pass(self, batch: StaticBatch, *, is_exchanged: bool) -> None:
        """Compute the gradients of a step."""
        self.optimizer.zero_grad()
        micro_batch, num_features, _ = batch.views()
        self._backward(micro_batch, num_features, is_exchanged=is_exchanged)

    def _backward(self, batch: MicroBatch, num_features: Tensor, *, is_exchanged: bool) -> Tensor:
        """Leave the gradients of a step and return this rank's share of the loss."""
        set_gradient_sync(self.model, is_exchanged=False)
        with self._exchange.during_backward() if self._exchange and is_exchanged else nullcontext():
            return self._eager.backward(batch, num_features)

    def _record(self, batch: StaticBatch) -> _Captured:
        """Return the graph of a step; gradients are there."""
        self.updater.make_state()
        self.optimizer.zero_grad()
        kernel = WeightKernel(self.optimizer) if self._has_weight_kernel else None
        if kernel is not None:
            kernel.rehearse()
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.current_stream(self._topology.device)
        # Other threads (NCCL's watchdog, the profiler, the one that makes batches) may call CUDA meanwhile.
        with (
            _capturable(self.updater, self.optimizer, kernel),
            torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"),
        ):
            micro_batch, num_features, wants_stop = batch.views()
            loss = self._backward(micro_batch, num_features, is_exchanged=True)
            figures = self._eager.update(loss, wants_stop, self._learning_rate)
        if kernel is not None:
            kernel.bind()
        return _Captured(graph, batch, figures, kernel)


@contextmanager
def _capturable(updater: Updater, optimizer: AdamW, kernel: WeightKernel | None) -> Iterator[None]:
    """Let the update be captured; a checkpoint has the same form with and without capture."""
    rates = [group["lr"] for group in optimizer.param_groups]
    updater.kernel = kernel
    for group in optimizer.param_groups:
        group["capturable"] = True
    try:
        yield
    finally:
        updater.kernel = None
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["capturable"] = False
            group["lr"] = rate
