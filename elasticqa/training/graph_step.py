"""Training steps as CUDA graphs, one graph per padded number of tokens; the host only launches them."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import AdamW

from elasticqa.data.micro_batch import MicroBatch
from elasticqa.data.sampler import MicroBatchShape, StepBatch
from elasticqa.errors import MicroBatchTooLargeError
from elasticqa.models.kernels.adamw import AdamWKernel
from elasticqa.models.parallelize import is_sharded, set_gradient_sync
from elasticqa.training.optimizer import Updater
from elasticqa.training.reducer import GradientReducer
from elasticqa.training.static_inputs import StaticInputs, StaticShape, fed_ids, fill, token_quantum
from elasticqa.training.train_step import Inputs, StepOutput, TrainStep, seed_step

FIRST_PASSES = 12
"""Passes before the first capture: DDP times its first ten with CUDA events, which a capture forbids."""
PASSES = 2
"""Passes before each further capture: libraries allocate and compile in the first one."""


@dataclass(frozen=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    inputs: StaticInputs
    scalars: Tensor
    kernel: AdamWKernel | None
    """Owns tensors that the graph reads."""


@dataclass(kw_only=True)
class CudaGraphTrainStep(TrainStep):
    """Replays captured steps of packed batches; other steps run eagerly.

    Steps of several micro-batches are not captured, nor is a smaller last step of an epoch. The current stream must be
    the one that the model was parallelized on, and not the default stream.
    """

    global_batch_size: int
    micro_batch_size: int
    max_length: int
    has_adamw_kernel: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        deviation = float(self.features.lengths.std())
        self._quantum = token_quantum(deviation, self.global_batch_size, self.topology.world_size)
        self._learning_rate = torch.zeros((), device=self.topology.device)
        self._captured: dict[int, _Captured] = {}
        is_reduced = self.topology.world_size > 1 and not is_sharded(self.model)
        self._reducer = GradientReducer(list(self.model.parameters())) if is_reduced else None
        self._pool = torch.cuda.graph_pool_handle()

    def inputs(self, step_batch: StepBatch) -> Inputs:
        """Return the inputs of a step: those of its graph, or micro-batches if the step is not captured."""
        if len(step_batch.micro_batches) > 1 or step_batch.num_features < self.global_batch_size:
            return super().inputs(step_batch)
        return fill(self.features, step_batch.micro_batches[0], self._shape(step_batch), step_batch.num_features)

    def _start(
        self, step_batch: StepBatch, inputs: Inputs, learning_rate: float, stop_vote: float, data_time_s: float
    ) -> StepOutput:
        if isinstance(inputs, list):
            return super()._start(step_batch, inputs, learning_rate, stop_vote, data_time_s)
        shape, num_tokens = self._shape(step_batch), self.num_tokens(step_batch)
        is_new = num_tokens not in self._captured
        if is_new:
            self._captured[num_tokens] = self._capture(shape, inputs, step_batch.largest)
        captured = self._captured[num_tokens]
        captured.inputs.load(inputs, stop_vote)
        self._learning_rate.fill_(learning_rate)
        # Seed dropout for this step: a replay reads the generator's current state, as an eager step does.
        seed_step(self.seed, step_batch.step, self.topology.rank)
        captured.graph.replay()
        return StepOutput(captured.scalars, fed_ids(inputs, shape), data_time_s, is_warmup=is_new)

    def _shape(self, step_batch: StepBatch) -> StaticShape:
        return StaticShape(self.num_tokens(step_batch), self.micro_batch_size, self.max_length)

    def num_tokens(self, step_batch: StepBatch) -> int:
        """Return the number of tokens to which a step is padded: the largest rank's, rounded up.

        All ranks use the same number, so their graphs contain the same collectives.
        """
        return -(-step_batch.max_share_tokens // self._quantum) * self._quantum

    def close(self) -> None:
        """Free the graphs. Call this first: destroying the process group waits for graphs that use its communicator."""
        super().close()
        self._free()

    def _free(self) -> None:
        torch.cuda.synchronize(self.topology.device)
        for captured in self._captured.values():
            captured.graph.reset()
        self._captured.clear()

    def _capture(self, shape: StaticShape, content: Tensor, largest: MicroBatchShape) -> _Captured:
        """Return the graph of a step of this shape; weights and optimizer state do not change.

        If memory runs out, all graphs are freed and MicroBatchTooLargeError names ``largest``, the largest share of any
        rank, without placeholders.
        """
        inputs, guard = StaticInputs(shape, self.topology.device), self.guard
        inputs.load(content, stop_vote=0.0)
        try:
            # FSDP gathers weights in every pass, so only a replicated model can run a pass without collectives.
            if not is_sharded(self.model):
                guard.run(lambda: self._pass(inputs, is_reduced=False), largest)
            for _ in range(PASSES if self._captured else FIRST_PASSES):
                guard.run_reducing(lambda: self._pass(inputs, is_reduced=True), largest)
            # FSDP cannot continue after an error in the middle of a pass, so the attempt must end.
            run = guard.run_reducing if is_sharded(self.model) else guard.run
            return run(lambda: self._record(inputs), largest)
        except MicroBatchTooLargeError:
            self.optimizer.zero_grad()
            self._free()
            raise

    def _pass(self, inputs: StaticInputs, *, is_reduced: bool) -> None:
        self.optimizer.zero_grad()
        micro_batch, num_features, _ = inputs.views()
        self._backward(micro_batch, num_features, is_reduced=is_reduced)

    def _backward(self, batch: MicroBatch, num_features: Tensor, *, is_reduced: bool) -> Tensor:
        """Compute the gradients of a step and return this rank's share of the loss."""
        set_gradient_sync(self.model, is_synced=False)
        with self._reducer.during_backward() if self._reducer and is_reduced else nullcontext():
            return self.backward(batch, num_features)

    def _record(self, inputs: StaticInputs) -> _Captured:
        """Return the graph of a step; gradients must exist."""
        self.updater.make_state()
        self.optimizer.zero_grad()
        kernel = AdamWKernel(self.optimizer) if self.has_adamw_kernel else None
        if kernel is not None:
            kernel.warm_up()
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.current_stream(self.topology.device)
        # Other threads (NCCL's watchdog, the profiler, the prefetcher) may call CUDA during the capture.
        with (
            _capturable(self.updater, self.optimizer, kernel),
            torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"),
        ):
            micro_batch, num_features, stop_vote = inputs.views()
            loss = self._backward(micro_batch, num_features, is_reduced=True)
            scalars = self.update(loss, stop_vote, self._learning_rate)
        if kernel is not None:
            kernel.bind_addresses()
        return _Captured(graph, inputs, scalars, kernel)


@contextmanager
def _capturable(updater: Updater, optimizer: AdamW, kernel: AdamWKernel | None) -> Iterator[None]:
    """Make the optimizer capturable inside the block only: checkpoints look the same with and without capture."""
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
