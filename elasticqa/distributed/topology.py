"""Ranks, the device of this rank, and the collectives of small values between ranks."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeVar, cast

import torch
import torch.distributed as dist

from elasticqa.config.environment import MIN_NODES_VARIABLE, NPROC_PER_NODE_VARIABLE
from elasticqa.config.train_config import Parallel, Precision
from elasticqa.errors import CheckpointError, ConfigError

T = TypeVar("T")

_FACTS = {
    "RANK": 0,
    "LOCAL_RANK": 0,
    "GROUP_RANK": 0,
    "WORLD_SIZE": 1,
    "LOCAL_WORLD_SIZE": 1,
    "GROUP_WORLD_SIZE": 1,
    "TORCHELASTIC_RESTART_COUNT": 0,
}
"""Variable of torchrun -> its smallest value, which is that of a single process."""

_MINIMA = {MIN_NODES_VARIABLE: "GROUP_WORLD_SIZE", NPROC_PER_NODE_VARIABLE: "LOCAL_WORLD_SIZE"}
"""Variable of the launcher -> torchrun's variable, which must be at least as large."""


@dataclass(frozen=True)
class Topology:
    """Rank, world size, device and process group of this process."""

    rank: int
    local_rank: int
    node_rank: int
    world_size: int
    local_world_size: int
    num_nodes: int
    restart_count: int
    device: torch.device
    is_distributed: bool
    """Started by torchrun: a process group exists, even for a world size of 1."""
    main_address: str = "localhost"
    """Address of rank 0's node."""
    group: dist.ProcessGroup | None = None
    """Process group of the methods below; None for the default group."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> "Topology":
        """Return the topology that torchrun set in the environment, or that of a single process.

        Raises:
            ConfigError: this node has GPUs, but fewer GPUs than processes; a variable is not a number; or the world is
                smaller than the launch requires.
        """
        is_distributed = "RANK" in environ and "MASTER_ADDR" in environ
        # Read these variables only under torchrun: schedulers set some of them for single processes too.
        facts = {name: _count(environ, name, least) if is_distributed else least for name, least in _FACTS.items()}
        for variable, name in _MINIMA.items():
            least = _count(environ, variable, 1)
            if facts[name] < least:
                raise ConfigError(
                    f"{name}={facts[name]} is less than {variable}={least}, which the launch requires: the run does "
                    "not train on less; see in the log which nodes joined, or use fewer (--nnodes, --nproc_per_node)"
                )
        local_world_size, local_rank = facts["LOCAL_WORLD_SIZE"], facts["LOCAL_RANK"]
        num_gpus = torch.cuda.device_count()
        if num_gpus and local_world_size > num_gpus:
            raise ConfigError(
                f"nproc_per_node={local_world_size} but this node has {num_gpus} GPUs: each rank needs its own; "
                f"use --nproc_per_node {num_gpus}, or hide the GPUs with CUDA_VISIBLE_DEVICES= to train on the CPU"
            )
        return cls(
            rank=facts["RANK"],
            local_rank=local_rank,
            node_rank=facts["GROUP_RANK"],
            world_size=facts["WORLD_SIZE"],
            local_world_size=local_world_size,
            num_nodes=facts["GROUP_WORLD_SIZE"],
            restart_count=facts["TORCHELASTIC_RESTART_COUNT"],
            device=torch.device("cuda", local_rank) if num_gpus else torch.device("cpu"),
            is_distributed=is_distributed,
            main_address=environ["MASTER_ADDR"] if is_distributed else "localhost",
        )

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which writes the files of the whole run."""
        return self.rank == 0

    @property
    def is_node_main(self) -> bool:
        """Whether this is the rank of its node that writes the node's journal."""
        return self.local_rank == 0

    @contextmanager
    def process_group(self, timeout: timedelta) -> Iterator[None]:
        """Create the default process group for the block; every rank must enter.

        NCCL is used for CUDA tensors and gloo for CPU tensors: collectives of small host values do not use the device.
        """
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        if not self.is_distributed:
            yield
            return
        if self.device.type == "cuda":
            dist.init_process_group("cpu:gloo,cuda:nccl", timeout=timeout, device_id=self.device)
        else:
            dist.init_process_group("gloo", timeout=timeout)
        try:
            yield
        finally:
            dist.destroy_process_group()

    def with_own_group(self, timeout: timedelta) -> "Topology":
        """Return this topology with a new gloo group, for collectives of another thread; every rank must call this.

        The group is destroyed with the default group.
        """
        if not self.is_distributed:
            return self
        return replace(self, group=dist.new_group(backend="gloo", timeout=timeout))

    def barrier(self) -> None:
        """Wait for all ranks; every rank must call this."""
        if self.is_distributed:
            dist.barrier(group=self.group)

    def broadcast(self, value: T) -> T:
        """Return rank 0's value on every rank; every rank must call this (picklable values)."""
        if not self.is_distributed:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, device=torch.device("cpu"), group=self.group)
        return box[0]

    def on_main(self, work: Callable[[], T]) -> T:
        """Return the result of ``work`` on rank 0, the only rank that calls it; every rank must call this.

        Raises:
            ValueError, CheckpointError: on every rank, if ``work`` raised it.
        """
        outcome: T | Exception | None = None
        if self.is_main:
            try:
                outcome = work()
            except (ValueError, CheckpointError) as raised:
                outcome = raised
        outcome = self.broadcast(outcome)
        if isinstance(outcome, Exception):
            raise outcome
        return cast("T", outcome)

    def gather(self, value: T | None) -> list[T]:
        """Return the ranks' values in rank order, without None, on rank 0; [] on other ranks. A collective."""
        box: list[T | None] | None = [None] * self.world_size if self.is_main else None
        if self.is_distributed:
            dist.gather_object(value, box, dst=0, group=self.group)
        else:
            box = [value]
        return [item for item in box or [] if item is not None]

    def all_gather(self, value: T) -> list[T]:
        """Return the ranks' values in rank order, without None, on every rank; every rank must call this."""
        return self.broadcast(self.gather(value))

    def first_value(self, value: T | None) -> T | None:
        """Return the value, not None, of the lowest rank that has one; every rank must call this."""
        values = self.gather(value)
        return self.broadcast(values[0] if values else None)

    def all_reduce_sum(self, tensor: torch.Tensor) -> None:
        """Sum the tensor over all ranks, in place, without waiting for the device; a collective."""
        if self.is_distributed:
            dist.all_reduce(tensor, group=self.group)


def _count(environ: Mapping[str, str], name: str, least: int) -> int:
    text = environ.get(name, str(least))
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        raise ConfigError(
            f"{name}={text!r} in the environment is not a whole number from {least} on: start with torchrun"
        )
    return int(text)


def check_parallel(parallel: Parallel, world_size: int, *, is_distributed: bool) -> None:
    """Raise ConfigError for a strategy that does not fit how the processes were started."""
    if parallel == "none" and world_size > 1:
        raise ConfigError(
            f"parallel='none' cannot use world_size={world_size}: it is one process; "
            "use the component ddp or fsdp, or --parallel ddp"
        )
    if parallel == "fsdp" and not is_distributed:
        raise ConfigError("parallel='fsdp' needs a process group: start it with the component fsdp or with torchrun")


def resolve_precision(asked: Precision, device: torch.device) -> Precision:
    """Return the precision to use on the device, never ``auto``.

    Raises:
        ConfigError: the device does not support the precision.
    """
    if device.type == "cpu":
        if asked == "fp16":
            raise ConfigError("precision='fp16' needs a GPU: a CPU computes in fp32 or bf16; use --precision fp32")
        return "fp32" if asked == "auto" else asked
    has_bf16 = torch.cuda.get_device_capability(device) >= (8, 0)
    if asked == "auto":
        return "bf16" if has_bf16 else "fp16"
    if asked == "bf16" and not has_bf16:
        raise ConfigError(
            f"precision='bf16' is not supported by {torch.cuda.get_device_name(device)}: it needs compute "
            "capability 8.0; use --precision fp16"
        )
    return asked
