"""Training steps of elasticqa as its trainer takes them: sampling, packing, the step, its scalars read late."""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from itertools import cycle
from typing import Any

from benchmarks.support.setup import MAX_LENGTH, build_model
from benchmarks.training.interleaved import Case
from benchmarks.training.worker import Worker
from elasticqa.config.batch_plan import batch_plan
from elasticqa.config.train_config import TrainConfig
from elasticqa.data.sampler import Sampler
from elasticqa.data.squad.features import Features
from elasticqa.distributed.topology import Topology
from elasticqa.models.attention import PACKED, PACKED_SDPA
from elasticqa.models.question_answering import ModelSpec, QuestionAnswerer
from elasticqa.training.builder import build_train_step
from elasticqa.training.graph_step import CudaGraphTrainStep
from elasticqa.training.host_copy import HostCopies
from elasticqa.training.optimizer import learning_rate_at
from elasticqa.training.train_step import TrainStep
from elasticqa.training.trainer import settle

VARIANTS: dict[str, dict[str, Any]] = {
    "elasticqa": {},
    "elasticqa_eager": {"compile": False, "cuda_graphs": False},
    "elasticqa_captured": {"compile": False, "kernels": False},
    "elasticqa_compiled": {"kernels": False},
    "elasticqa_fp16_sdpa": {"attention": "sdpa", "precision": "fp16"},
    "elasticqa_fp16_sdpa_captured": {"attention": "sdpa", "precision": "fp16", "compile": False},
    "elasticqa_fp16_sdpa_eager": {"attention": "sdpa", "precision": "fp16", "compile": False, "cuda_graphs": False},
    "elasticqa_ddp": {"parallel": "ddp"},
    "elasticqa_fsdp": {"parallel": "fsdp"},
}
"""Variant -> changes of the defaults. `elasticqa` has none; `elasticqa_fp16_sdpa` is what a GPU of compute capability
below 8.0 can do."""
HORIZON = 2_000
"""Steps whose sizes are captured before the measurement."""
LAG = 2
"""Steps after which the scalars of a step are read, as in the trainer."""


def config_of(case: Case) -> TrainConfig:
    """Return the config of a variant."""
    changes = VARIANTS[case.variant]
    per_rank = -(-case.global_batch_size // case.world_size)
    return TrainConfig(
        model=case.model,
        global_batch_size=case.global_batch_size,
        # The largest share of a rank may have a few features more than the mean.
        micro_batch_size=per_rank if case.world_size == 1 else 2 * per_rank,
        learning_rate=4e-5,
        epochs=2,
        max_length=MAX_LENGTH,
        **{"parallel": "none", **changes},
    )


def add_loop_options(options: ArgumentParser) -> None:
    """Add the options of scripts that take steps in their own process, alone or under torchrun."""
    options.add_argument("--model", default="bert-base")
    options.add_argument("--parallel", choices=("none", "ddp", "fsdp"), default="none")
    options.add_argument("--batch-size", type=int, default=24, help="features of a step over all ranks")


def config_of_options(given: Namespace, topology: Topology, **more: Any) -> TrainConfig:
    """Return the config of the options."""
    per_rank = -(-given.batch_size // topology.world_size)
    return TrainConfig(
        model=given.model,
        parallel=given.parallel,
        global_batch_size=given.batch_size,
        # The largest share of a rank may have a few features more than the mean.
        micro_batch_size=per_rank if topology.world_size == 1 else 2 * per_rank,
        max_length=MAX_LENGTH,
        **more,
    )


def run(case: Case, worker: Worker) -> None:
    """Take steps until the parent process stops the worker."""
    # Keep compiled code between runs, as a user's home does.
    os.environ.setdefault("ELASTICQA_HOME", os.fspath(case.data.cache / "home"))
    topology = Topology.from_env()
    with topology.process_group(timedelta(minutes=5)), ExitStack() as stack:
        loop = Loop(config_of(case), case.data.features(), topology, case.model, stack)
        loop.warm_up()
        for _ in worker:
            loop.step()


class Loop:
    """A train step that takes the full batches of the first epoch, over and over again."""

    def __init__(
        self,
        config: TrainConfig,
        features: Features,
        topology: Topology,
        model: str,
        stack: ExitStack,
        **more: Any,
    ) -> None:
        """Build the train step; ``more`` changes the model's configuration. Every rank must call this."""
        self._config = config
        # Prefetch on a GPU only, as the trainer does: on a CPU, prefetching competes with the step.
        self._is_ahead = topology.device.type == "cuda"
        self._plan = batch_plan(config, len(features), topology.world_size)
        attention = PACKED_SDPA if config.attention == "sdpa" else PACKED
        bare = build_model(model, config.seed, attn_implementation=attention, **more)
        answerer = QuestionAnswerer(bare, ModelSpec.of(bare.config, config.attention))
        self.train_step: TrainStep = build_train_step(
            config, topology, plan=self._plan, features=features, answerer=answerer, stack=stack
        )
        stack.callback(self.train_step.close)
        self._sampler = Sampler(
            self._plan,
            features.lengths,
            seed=config.seed,
            rank=topology.rank,
            world_size=topology.world_size,
            micro_batch_size=config.micro_batch_size,
        )
        self._num_full = max(1, len(features) // self._plan.global_batch_size)
        self._steps: Iterator[int] = cycle(range(self._num_full))
        self._scalars: HostCopies[None] = HostCopies()
        self.losses: list[float] = []
        self.data_time_s = 0.0
        """Time that steps waited for their batches."""

    def warm_up(self) -> None:
        """Take one step of each size, so that measured steps neither compile nor capture."""
        self.train_step.prime(0)
        if isinstance(self.train_step, CudaGraphTrainStep):
            sizes = set()
            for step in range(min(HORIZON, self._num_full)):
                step_batch = self._sampler.step_batch(step)
                if (size := self.train_step.num_tokens(step_batch)) not in sizes:
                    self.train_step.run(step_batch, 0.0)
                    sizes.add(size)
        if self._is_ahead:
            self.train_step.prefetch(self._sampler)
        settle()

    def step(self) -> None:
        """Take one step; every rank must call this."""
        step_batch = self._sampler.step_batch(next(self._steps))
        rate = learning_rate_at(step_batch.step, self._plan.num_steps, self._config)
        output = self.train_step.run(step_batch, rate)
        self.data_time_s += output.data_time_s
        self._scalars.push(None, output.scalars)
        self._read(LAG)

    def skip(self, num_steps: int) -> None:
        """Skip the steps before a checkpoint."""
        for _ in range(num_steps):
            next(self._steps)

    def read_all(self) -> None:
        """Read the losses of all steps so far."""
        self._read(0)

    def _read(self, lag: int) -> None:
        self.losses += [float(scalars[0]) for _, scalars in self._scalars.read(lag)]
