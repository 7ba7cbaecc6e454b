"""One optimizer step on this rank: forward, backward, reduce, clip, update."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import AdamW

from elasticqa.config.train_config import Precision
from elasticqa.data.micro_batch import NO_FEATURES, MicroBatch, pack
from elasticqa.data.prefetcher import Prefetcher
from elasticqa.data.sampler import Sampler, StepBatch
from elasticqa.data.squad.features import Features
from elasticqa.distributed.topology import Topology
from elasticqa.errors import MicroBatchTooLargeError
from elasticqa.models.parallelize import DTYPES, is_sharded, set_gradient_sync
from elasticqa.models.question_answering import feature_losses
from elasticqa.training.oom_recovery import MemoryGuard
from elasticqa.training.optimizer import Updater

Inputs = list[MicroBatch] | Tensor
"""A step's inputs: micro-batches, or the content of the buffer of a captured step."""


@dataclass(frozen=True)
class StepOutput:
    """Result of a step that has been started.

    Attributes:
        scalars: (4,) on the device: loss of the global batch, votes of all ranks to stop, gradient norm before
            clipping, loss scale. Reading it waits for the device.
        fed_ids: ids of the features that this rank fed, read back from its tensors.
        data_time_s: seconds that this rank waited for its batches.
        is_warmup: the step also compiled or captured, so its time is not comparable.
    """

    scalars: Tensor
    fed_ids: list[int]
    data_time_s: float
    is_warmup: bool = False


def seed_step(seed: int, step: int, rank: int) -> None:
    """Seed dropout from (seed, step, rank), so that checkpoints need no generator state."""
    state = np.random.SeedSequence([seed, step, rank]).generate_state(1, dtype=np.uint64)
    # torch.manual_seed takes a signed 64-bit integer.
    torch.manual_seed(int(state[0] >> np.uint64(1)))


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Return the context in which the model computes in the precision."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, dtype=DTYPES[precision])


@dataclass(kw_only=True)
class TrainStep:
    """Runs steps operator by operator: any model, device, strategy and number of micro-batches."""

    topology: Topology
    features: Features
    model: nn.Module
    optimizer: AdamW
    updater: Updater
    precision: Precision
    seed: int
    losses: Callable[[Tensor, MicroBatch], Tensor] = feature_losses
    """Computes the loss of each feature from the logits; may be compiled."""
    guard: MemoryGuard = field(init=False)
    _prefetcher: Prefetcher[Inputs] = field(init=False)

    def __post_init__(self) -> None:
        self.guard = MemoryGuard(self.topology)
        self._prefetcher = Prefetcher(self.inputs)

    def prefetch(self, sampler: Sampler) -> None:
        """Prefetch the inputs of the sampler's steps until closed."""
        self._prefetcher.start(sampler, self.topology.device)

    def close(self) -> None:
        """End the prefetching thread; call it before the process group is destroyed."""
        self._prefetcher.close()

    def prime(self, step: int) -> None:
        """Run one pass of weight 0 before the first step; every rank must call this.

        DDP rebuilds its buckets after its first backward pass, which changes the order of sums; with this pass a
        resumed run has the same buckets as the uninterrupted one.
        """
        self.model.train()
        seed_step(self.seed, step, self.topology.rank)
        self.backward(pack(self.features, NO_FEATURES).to(self.topology.device), 1)
        self.optimizer.zero_grad()

    def inputs(self, step_batch: StepBatch) -> Inputs:
        """Return a step's inputs on the host; other threads may call this."""
        packed = [pack(self.features, indices) for indices in step_batch.micro_batches]
        return packed if self.topology.device.type == "cpu" else [batch.pinned() for batch in packed]

    def run(self, step_batch: StepBatch, learning_rate: float, stop_vote: float = 0.0) -> StepOutput:
        """Compute one step and start the update; a vote of 1.0 asks all ranks to stop. Every rank must call this.

        Raises:
            MicroBatchTooLargeError: on every rank, when one has no memory for a micro-batch; weights are unchanged.
            LocalOutOfMemoryError: only on the rank that has no memory, while the others wait in a collective.
        """
        began = time.perf_counter()
        inputs = self._prefetcher.take(step_batch)
        data_time_s = time.perf_counter() - began
        return self._start(step_batch, inputs, learning_rate, stop_vote, data_time_s)

    def _start(
        self, step_batch: StepBatch, inputs: Inputs, learning_rate: float, stop_vote: float, data_time_s: float
    ) -> StepOutput:
        assert isinstance(inputs, list)
        seed_step(self.seed, step_batch.step, self.topology.rank)
        loss = self._accumulate(step_batch, inputs)
        scalars = self.update(loss, torch.full_like(loss, stop_vote), learning_rate)
        return StepOutput(scalars, [index for batch in inputs for index in batch.fed_ids()], data_time_s)

    def _accumulate(self, step_batch: StepBatch, batches: list[MicroBatch]) -> Tensor:
        """Accumulate and reduce the gradients, and return this rank's share of the loss."""
        is_replicated = self.topology.is_distributed and not is_sharded(self.model)
        if is_sharded(self.model) or (is_replicated and self.guard.knows(step_batch.largest)):
            work = partial(self._backward_all, step_batch, batches, is_reduced=True)
            return self.guard.run_reducing(work, step_batch.largest)
        try:
            loss = self.guard.run(lambda: self._backward_all(step_batch, batches, is_reduced=False), step_batch.largest)
        except MicroBatchTooLargeError:
            self.optimizer.zero_grad()
            raise
        if is_replicated:
            # Reduce the gradients with a backward pass of weight 0, which adds nothing to them.
            set_gradient_sync(self.model, is_synced=True)
            self.backward(pack(self.features, NO_FEATURES).to(self.topology.device), step_batch.num_features)
        return loss

    def _backward_all(self, step_batch: StepBatch, batches: list[MicroBatch], *, is_reduced: bool) -> Tensor:
        loss = torch.zeros((), device=self.topology.device)
        for number, batch in enumerate(batches, start=1):
            set_gradient_sync(self.model, is_reduced and number == len(batches))
            loss += self.backward(batch.to(self.topology.device), step_batch.num_features)
        return loss

    def backward(self, batch: MicroBatch, num_features: int | Tensor) -> Tensor:
        """Add a micro-batch's gradients and return its share of the loss of a step of ``num_features``."""
        with autocast(self.precision, self.topology.device):
            logits = self.model(batch)
        share = (self.losses(logits, batch) * batch.weights).sum() / num_features
        # DDP and FSDP average gradients over the ranks, but a step's loss is a sum over them: multiply by their number.
        (share * self.topology.world_size * self.updater.scale).backward()
        return share.detach()

    def update(self, loss: Tensor, stop_vote: Tensor, learning_rate: float | Tensor) -> Tensor:
        """Update the weights, free the gradients, and return `StepOutput.scalars`; every rank must call this."""
        summed = torch.stack([loss, stop_vote])
        self.topology.all_reduce_sum(summed)
        norm = self.updater.step(learning_rate, summed[0])
        self.optimizer.zero_grad()
        return torch.stack([*summed, norm, self.updater.scale])
