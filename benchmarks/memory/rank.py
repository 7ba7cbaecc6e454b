"""One rank of `bert_large`: takes steps with growing batches until one does not fit. Only `bert_large` starts it."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any, Literal, TypeVar, cast

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

from benchmarks.support.setup import MAX_LENGTH, Data, build_model, card, synchronize
from elasticqa.config.batch_plan import batch_plan
from elasticqa.config.train_config import TrainConfig
from elasticqa.data.sampler import MicroBatchShape, StepBatch
from elasticqa.data.squad.features import Features
from elasticqa.distributed.shards import local_part
from elasticqa.distributed.topology import Topology
from elasticqa.errors import LocalOutOfMemoryError, MicroBatchTooLargeError
from elasticqa.models.attention import PACKED
from elasticqa.models.question_answering import ModelSpec, QuestionAnswerer, checkpoint_activations
from elasticqa.training.builder import build_train_step
from elasticqa.training.train_step import TrainStep

T = TypeVar("T")

STEPS = 2
EXIT_NO_MEMORY = 3


@dataclass(frozen=True)
class Request:
    """A search for the largest batch."""

    data: Data
    model: str
    parallel: str
    recomputes: bool
    batches: list[int]
    """Features per rank, ascending."""
    is_alone: bool
    """Run without the other ranks and without communication."""


@dataclass(frozen=True)
class Fit:
    """A batch that fits on a rank, and its memory."""

    batch: int
    peak_memory_bytes: int | None
    peak_reserved_bytes: int | None
    local_parameter_bytes: int
    parameter_bytes: int
    card: str


class LoneRank(Topology):
    """A rank without the other ranks: collectives of tensors return at once with undefined values."""

    @contextmanager
    def process_group(self, timeout: timedelta) -> Iterator[None]:
        """Hold a default process group without communication."""
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        dist.init_process_group("fake", store=FakeStore(), rank=self.rank, world_size=self.world_size)
        try:
            yield
        finally:
            dist.destroy_process_group()

    def broadcast(self, value: T) -> T:
        """Return the value."""
        return value

    def gather(self, value: T | None) -> list[T]:
        """Return the value once per rank."""
        return [] if value is None else [value] * self.world_size


def main() -> None:
    """Try the batches in order and send each that fits."""
    connection: Connection[Any, Any] = Connection(int(sys.argv[1]))
    try:
        ask: Request = connection.recv()
    except EOFError:
        return
    topology = (LoneRank if ask.is_alone else Topology).from_env()
    with topology.process_group(timedelta(minutes=2)), ExitStack() as stack:
        features = ask.data.features()
        torch.manual_seed(0)
        with torch.device(topology.device):
            bare = build_model(ask.model, 0, attn_implementation=PACKED)
        if ask.recomputes:
            checkpoint_activations(bare)
        answerer = QuestionAnswerer(bare, ModelSpec.of(bare.config, "auto"))
        whole = sum(parameter.numel() * parameter.element_size() for parameter in answerer.parameters())
        engine = _engine(ask, topology, features, answerer, stack)
        if ask.is_alone and isinstance(engine.model, DistributedDataParallel):
            engine.model.register_comm_hook(None, _leave_as_it_is)
        engine.prime(0)
        longest = int(np.argmax(features.lengths))
        for batch in ask.batches:
            try:
                for step in range(STEPS):
                    engine.run(_step_batch(step, batch, longest, features, topology.world_size), 1e-5)
                synchronize()
            except (torch.OutOfMemoryError, MicroBatchTooLargeError, LocalOutOfMemoryError) as error:
                print(error, flush=True)
                # Leaving the process group in an orderly way would need the other ranks.
                os._exit(EXIT_NO_MEMORY)
            num_bytes = sum(local_part(parameter).nbytes for parameter in engine.model.parameters())
            connection.send(Fit(batch, *_peaks(), num_bytes, whole, card()))


def _leave_as_it_is(
    _: None,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[torch.Tensor]:
    """Replace DDP's all-reduce, which works in place and so needs no memory."""
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def _engine(
    ask: Request, topology: Topology, features: Features, answerer: QuestionAnswerer, stack: ExitStack
) -> TrainStep:
    most = max(ask.batches)
    config = TrainConfig(
        parallel=cast("Literal['ddp', 'fsdp']", ask.parallel),
        global_batch_size=most * topology.world_size,
        micro_batch_size=most,
        max_length=MAX_LENGTH,
        activation_checkpointing=ask.recomputes,
        # Off, so that cases are comparable: CUDA graphs cannot recompute, and compiled code keeps other tensors.
        compile=False,
        cuda_graphs=False,
        # The setting that needs least memory.
        reshard=ask.parallel == "fsdp" or None,
    )
    plan = batch_plan(config, len(features), topology.world_size)
    return build_train_step(config, topology, plan=plan, features=features, answerer=answerer, stack=stack)


def _step_batch(step: int, batch: int, index: int, features: Features, world_size: int) -> StepBatch:
    """Return a step in which every rank takes the same feature ``batch`` times."""
    tokens = batch * int(features.lengths[index])
    return StepBatch(
        step=step,
        epoch=0,
        micro_batches=[np.full(batch, index, dtype=np.int64)],
        num_features=batch * world_size,
        num_tokens=tokens * world_size,
        max_share_tokens=tokens,
        largest=MicroBatchShape(batch, tokens, tokens),
    )


def _peaks() -> tuple[int | None, int | None]:
    if not torch.cuda.is_available():
        return None, None
    return torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
