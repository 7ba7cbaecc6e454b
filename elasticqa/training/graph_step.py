"""Whole training steps as CUDA graphs, one per size of a rank's share: the host only launches them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import AdamW

from elasticqa.data.micro_batch import MicroBatch
from elasticqa.data.prefetcher import Prefetcher
from elasticqa.data.sampler import MicroBatchShape, Sampler, StepBatch
from elasticqa.errors import MicroBatchTooLargeError
from elasticqa.models.kernels.adamw import AdamWKernel
from elasticqa.models.parallelize import is_sharded, set_gradient_sync
from elasticqa.training.optimizer import Updater
from elasticqa.training.reducer import GradientReducer
from elasticqa.training.rng import seed_step
from elasticqa.training.static_inputs import StaticInputs, StaticShape, fed_ids, fill, token_quantum
from elasticqa.training.train_step import EagerTrainStep, StepOutput

FIRST_PASSES = 12
"""Passes before the first capture: DDP times its first ten on the device, which is not allowed during a capture."""
PASSES = 2
"""Passes before each further capture: libraries allocate and compile in the first one."""


@dataclass(frozen=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    inputs: StaticInputs
    scalars: Tensor
    kernel: AdamWKernel | None
    """Owns tensors that the graph reads."""


class CudaGraphTrainStep:
    """Replays captured steps of packed batches; other steps run eagerly.

    Steps of several micro-batches are not captured, nor is a smaller last step of an epoch. The current stream must be
    the one that the model was parallelized on, and not the default stream.
    """

    def __init__(
        self,
        eager: EagerTrainStep,
        *,
        global_batch_size: int,
        micro_batch_size: int,
        max_length: int,
        has_adamw_kernel: bool,
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
        self._has_adamw_kernel = has_adamw_kernel
        deviation = float(eager.features.lengths.std())
        self._quantum = token_quantum(deviation, global_batch_size, self._topology.world_size)
        self._learning_rate = torch.zeros((), device=self._topology.device)
        self._captured: dict[int, _Captured] = {}
        is_reduced = self._topology.world_size > 1 and not is_sharded(self.model)
        self._reducer = GradientReducer(list(self.model.parameters())) if is_reduced else None
        self._pool = torch.cuda.graph_pool_handle()
        self._prefetcher: Prefetcher[Tensor | list[MicroBatch]] = Prefetcher(self._make)

    def prime(self, step: int) -> None:
        """Prepare for the first step, numbered from 0; every rank must call this."""
        self._eager.prime(step)

    def prefetch(self, sampler: Sampler) -> None:
        """Prefetch the batches of the sampler's steps until closed."""
        self._prefetcher.start(sampler, self._topology.device)

    def run(self, step_batch: StepBatch, learning_rate: float, stop_vote: float = 0.0) -> StepOutput:
        """Start one step; every rank must call this.

        Raises:
            MicroBatchTooLargeError: on every rank, when one has no memory for the step; weights are unchanged.
            LocalOutOfMemoryError: on that rank only, in the middle of a collective.
        """
        began = time.perf_counter()
        content = self._prefetcher.take(step_batch)
        data_time_s = time.perf_counter() - began
        if isinstance(content, list):
            return self._eager.compute(step_batch, content, learning_rate, stop_vote, data_time_s)
        size, num_tokens = self._size(step_batch), self.num_tokens(step_batch)
        is_new = num_tokens not in self._captured
        if is_new:
            self._captured[num_tokens] = self._capture(size, content, step_batch.largest)
        captured = self._captured[num_tokens]
        captured.inputs.load(content, stop_vote)
        self._learning_rate.fill_(learning_rate)
        # A replay reads the current state of the generator, as an eager step does.
        seed_step(self._eager.seed, step_batch.step, self._topology.rank)
        captured.graph.replay()
        return StepOutput(captured.scalars, fed_ids(content, size), data_time_s, is_warmup=is_new)

    def _make(self, step_batch: StepBatch) -> Tensor | list[MicroBatch]:
        """Return the inputs of a step: static ones, or micro-batches if the step is not captured."""
        if len(step_batch.micro_batches) > 1 or step_batch.num_features < self._global_batch_size:
            return self._eager.batches(step_batch)
        return fill(self._eager.features, step_batch.micro_batches[0], self._size(step_batch), step_batch.num_features)

    def _size(self, step_batch: StepBatch) -> StaticShape:
        return StaticShape.of(self.num_tokens(step_batch), self._micro_batch_size, self._max_length)

    def num_tokens(self, step_batch: StepBatch) -> int:
        """Return the number of tokens that a step is filled up to: all ranks replay the size of the largest share.

        Their graphs contain the same collectives.
        """
        return -(-step_batch.max_share_tokens // self._quantum) * self._quantum

    def close(self) -> None:
        """Free the graphs before the process group is destroyed, which waits for graphs that use its communicator."""
        self._prefetcher.close()
        self._free()

    def _free(self) -> None:
        torch.cuda.synchronize(self._topology.device)
        for captured in self._captured.values():
            captured.graph.reset()
        self._captured.clear()

    def _capture(self, size: StaticShape, content: Tensor, largest: MicroBatchShape) -> _Captured:
        """Return the graph of a step of this size; weights and optimizer state do not change.

        Args:
            size: of the graph.
            content: inputs for the passes before the capture.
            largest: share of any rank, without placeholders, which is reported and halved if it does not fit.

        Raises:
            MicroBatchTooLargeError: on every rank, when one has no memory for it; then all graphs are freed.
            LocalOutOfMemoryError: on that rank only, in the middle of a collective.
        """
        inputs = StaticInputs(size, self._topology.device)
        inputs.load(content, stop_vote=0.0)
        guard = self._eager.guard
        try:
            # Sharded weights are gathered in every pass: none is without collectives.
            if not is_sharded(self.model):
                guard.run(lambda: self._pass(inputs, is_reduced=False), largest)
            for _ in range(PASSES if self._captured else FIRST_PASSES):
                guard.run_reducing(lambda: self._pass(inputs, is_reduced=True), largest)
            # A failure leaves FSDP in the middle of a pass, from which it cannot continue.
            run = guard.run_reducing if is_sharded(self.model) else guard.run
            return run(lambda: self._record(inputs), largest)
        except MicroBatchTooLargeError:
            self.optimizer.zero_grad()
            self._free()
            raise

    def _pass(self, inputs: StaticInputs, *, is_reduced: bool) -> None:
        """Compute the gradients of a step."""
        self.optimizer.zero_grad()
        micro_batch, num_features, _ = inputs.views()
        self._backward(micro_batch, num_features, is_reduced=is_reduced)

    def _backward(self, batch: MicroBatch, num_features: Tensor, *, is_reduced: bool) -> Tensor:
        """Compute the gradients of a step and return this rank's share of the loss."""
        set_gradient_sync(self.model, is_synced=False)
        with self._reducer.during_backward() if self._reducer and is_reduced else nullcontext():
            return self._eager.backward(batch, num_features)

    def _record(self, inputs: StaticInputs) -> _Captured:
        """Return the graph of a step; gradients must exist."""
        self.updater.make_state()
        self.optimizer.zero_grad()
        kernel = AdamWKernel(self.optimizer) if self._has_adamw_kernel else None
        if kernel is not None:
            kernel.warm_up()
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.current_stream(self._topology.device)
        # Other threads (NCCL's watchdog, the profiler, the prefetcher) may call CUDA during the capture.
        with (
            _capturable(self.updater, self.optimizer, kernel),
            torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"),
        ):
            micro_batch, num_features, stop_vote = inputs.views()
            loss = self._backward(micro_batch, num_features, is_reduced=True)
            scalars = self._eager.update(loss, stop_vote, self._learning_rate)
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
