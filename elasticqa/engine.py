"""The computation of one optimizer step on this rank: forward, backward, clip, update."""

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from elasticqa.batching import NO_FEATURES, StepPlan, pack
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
    """

    figures: Tensor
    fed_ids: list[int]
    data_time_s: float


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

    def prime(self, step: int) -> None:
        """Run one pass of weight 0 before the first step; every rank must call this.

        DDP lays its buckets out anew after its first backward pass, which changes the order of sums; with this pass
        a resumed run has the layout that the uninterrupted one had.
        """
        self.model.train()
        seed_step(self.seed, step, self.topology.rank)
        batch = pack(self.features, NO_FEATURES).to(self.topology.device)
        with autocast(self.precision, self.topology.device):
            logits = self.model(batch)
        (feature_losses(logits, batch) * batch.weights).sum().backward()
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
            with autocast(self.precision, self.topology.device):
                logits = self.model(batch)
            share = (feature_losses(logits, batch) * batch.weights).sum() / plan.num_features
            # DDP and FSDP average over the ranks; the loss of a step is a sum over them.
            (share * self.topology.world_size * self.updater.scale).backward()
            loss += share.detach()
        agreed = torch.stack([loss, torch.full_like(loss, float(wants_stop))])
        self.topology.sum_in_place(agreed)
        norm = self.updater.step(learning_rate, agreed[0])
        self.optimizer.zero_grad()
        return StepOutput(torch.stack([*agreed, norm, self.updater.scale]), fed_ids, data_time_s)
