"""The computation of one optimizer step on this rank: forward, backward, clip, update."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from elasticqa.batching import NO_FEATURES, MicroBatch, StepPlan, pack
from elasticqa.config import Precision
from elasticqa.model import feature_losses
from elasticqa.optim import Updater
from elasticqa.parallel import DTYPES, set_gradient_sync
from elasticqa.rng import seed_step
from elasticqa.squad.features import Features
from elasticqa.topology import Topology


@dataclass(frozen=True)
class StepOutput:
    """What a step gave.

    Attributes:
        figures: (4,) on the device: loss of the global batch, stop requests of all ranks, gradient norm before
            clipping, loss scale. Reading it waits for the device.
        fed_ids: the features that this rank fed, as its tensors had them.
        data_time_s: time that this rank spent on making batches.
        is_warmup: the step also compiled or captured, so its time says nothing of the others.
    """

    figures: Tensor
    fed_ids: list[int]
    data_time_s: float
    is_warmup: bool = False


class Engine(Protocol):
    """Whatever runs the steps of a trainer."""

    @property
    def model(self) -> nn.Module:
        """As wrapped."""

    @property
    def optimizer(self) -> AdamW:
        """Of that model."""

    @property
    def updater(self) -> Updater:
        """Of that optimizer."""

    @property
    def precision(self) -> Precision:
        """In use: never ``auto``."""

    def prime(self, step: int) -> None:
        """Prepare for the first step, numbered from 0; every rank must call this."""

    def run(self, plan: StepPlan, learning_rate: float, *, wants_stop: bool) -> StepOutput:
        """Start one step; every rank must call this."""


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Return the context in which the model computes in the precision."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, dtype=DTYPES[precision])


@dataclass(frozen=True, kw_only=True)
class EagerEngine:
    """Runs steps operator by operator: any model, device, strategy and number of micro-batches."""

    topology: Topology
    features: Features
    model: nn.Module
    optimizer: AdamW
    updater: Updater
    precision: Precision
    seed: int
    losses: Callable[[Tensor, MicroBatch], Tensor] = feature_losses
    """Loss of each feature from the logits, compiled or not."""

    def prime(self, step: int) -> None:
        """Run one pass of weight 0 before the first step; every rank must call this.

        DDP lays its buckets out anew after its first backward pass, which changes the order of sums; with this pass
        a resumed run has the layout that the uninterrupted one had.
        """
        self.model.train()
        seed_step(self.seed, step, self.topology.rank)
        self.backward(pack(self.features, NO_FEATURES).to(self.topology.device), 1)
        self.optimizer.zero_grad()

    def run(self, plan: StepPlan, learning_rate: float, *, wants_stop: bool) -> StepOutput:
        """Compute one step and start the update; every rank must call this.

        Args:
            plan: what this rank feeds.
            learning_rate: of this step.
            wants_stop: this rank has been asked to stop; the figures tell all ranks.
        """
        seed_step(self.seed, plan.step, self.topology.rank)
        loss = torch.zeros((), device=self.topology.device)
        data_time_s = 0.0
        fed_ids: list[int] = []
        for number, indices in enumerate(plan.micro_batches, start=1):
            began = time.perf_counter()
            packed = pack(self.features, indices)
            fed_ids += packed.fed_ids()
            batch = packed.to(self.topology.device)
            data_time_s += time.perf_counter() - began
            set_gradient_sync(self.model, number == len(plan.micro_batches))
            loss += self.backward(batch, plan.num_features)
        figures = self.update(loss, torch.full_like(loss, float(wants_stop)), learning_rate)
        return StepOutput(figures, fed_ids, data_time_s)

    def backward(self, batch: MicroBatch, num_features: int | Tensor) -> Tensor:
        """Add a micro-batch's gradients and return its share of the loss of a step of ``num_features``."""
        with autocast(self.precision, self.topology.device):
            logits = self.model(batch)
        share = (self.losses(logits, batch) * batch.weights).sum() / num_features
        # DDP and FSDP average over the ranks; the loss of a step is a sum over them.
        (share * self.topology.world_size * self.updater.scale).backward()
        return share.detach()

    def update(self, loss: Tensor, wants_stop: Tensor, learning_rate: float | Tensor) -> Tensor:
        """Update the weights, drop the gradients, and return the figures of a step; every rank must call this."""
        agreed = torch.stack([loss, wants_stop])
        self.topology.sum_in_place(agreed)
        norm = self.updater.step(learning_rate, agreed[0])
        self.optimizer.zero_grad()
        return torch.stack([*agreed, norm, self.updater.scale])
