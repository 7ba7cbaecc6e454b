"""Rank facts: read from the environment once, here and nowhere else."""

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
"""What torchrun says in the environment -> its least value, which is that of a single process."""

_MINIMA = {MIN_NODES_VARIABLE: "GROUP_WORLD_SIZE", NPROC_PER_NODE_VARIABLE: "LOCAL_WORLD_SIZE"}
"""Variable of the launcher -> the fact that must be at least as large."""


@dataclass(frozen=True)
class Topology:
    """Where this process stands in the world, and the device it computes on."""

    rank: int
    local_rank: int
    node_rank: int
    world_size: int
    local_world_size: int
    num_nodes: int
    restart_count: int
    device: torch.device
    is_distributed: bool
    """Started by torchrun: a process group exists, also for a world of one."""
    main_address: str = "localhost"
    """Where the node of rank 0 is reached."""
    group: dist.ProcessGroup | None = None
    """Of the agreements below; None for the default one."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> "Topology":
        """Return the facts that torchrun put in the environment, or those of a single process without it.

        Raises:
            ConfigError: this node has fewer GPUs than processes (and has some): two ranks would share one; a fact is
                no number; or the world is smaller than the launch asked for.
        """
        is_distributed = "RANK" in environ and "MASTER_ADDR" in environ
        # Schedulers leave some of these names to processes that they started alone.
        facts = {name: _count(environ, name, least) if is_distributed else least for name, least in _FACTS.items()}
        for promise, name in _MINIMA.items():
            least = _count(environ, promise, 1)
            if facts[name] < least:
                raise ConfigError(
                    f"{name}={facts[name]} is less than {promise}={least}, which the launch asked for: nothing is "
                    "trained on less; see in the log which nodes met, or start with fewer (--nnodes, --nproc_per_node)"
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
        """Whether this is the one rank that writes what the whole run shares."""
        return self.rank == 0

    @property
    def is_node_main(self) -> bool:
        """Whether this is the one rank of its node that writes the node's own journal."""
        return self.local_rank == 0

    @contextmanager
    def process_group(self, timeout: timedelta) -> Iterator[None]:
        """Hold the default process group while the block runs; every rank must enter.

        NCCL serves CUDA tensors and gloo CPU tensors, so small host-side agreements need no device.
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

    def apart(self, timeout: timedelta) -> "Topology":
        """Return the same ranks with a gloo group of their own, so that a thread may agree; every rank must call this.

        The group is destroyed with the default one.
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
        """Return what rank 0 made of ``work``; every rank must call this.

        Raises:
            ValueError, CheckpointError: on every rank, what ``work`` raised.
        """
        outcome: tuple[T | None, Exception | None] = (None, None)
        if self.is_main:
            try:
                outcome = work(), None
            except (ValueError, CheckpointError) as error:
                outcome = None, error
        value, refusal = self.broadcast(outcome)
        if refusal is not None:
            raise refusal
        return cast("T", value)

    def gather(self, value: T | None) -> list[T]:
        """Return the ranks' values in rank order, None left out, on rank 0; an empty list elsewhere. A collective."""
        box: list[T | None] | None = [None] * self.world_size if self.is_main else None
        if self.is_distributed:
            dist.gather_object(value, box, dst=0, group=self.group)
        else:
            box = [value]
        return [item for item in box or [] if item is not None]

    def share(self, value: T) -> list[T]:
        """Return the ranks' values in rank order, on every rank; every rank must call this."""
        return self.broadcast(self.gather(value))

    def first(self, value: T | None) -> T | None:
        """Return on every rank the value of the lowest rank that has one, or None; every rank must call this."""
        values = self.gather(value)
        return self.broadcast(values[0] if values else None)

    def sum_in_place(self, tensor: torch.Tensor) -> None:
        """Add the tensor up over all ranks, in place, without waiting for the device; a collective."""
        if self.is_distributed:
            dist.all_reduce(tensor, group=self.group)


def _count(environ: Mapping[str, str], name: str, least: int) -> int:
    text = environ.get(name, str(least))
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        raise ConfigError(f"{name}={text!r} in the environment is no count from {least} on: start with torchrun")
    return int(text)


def check_parallel(parallel: Parallel, world_size: int, *, is_distributed: bool) -> None:
    """Refuse a strategy that does not fit how the processes are started.

    Raises:
        ConfigError: it does not.
    """
    if parallel == "none" and world_size > 1:
        raise ConfigError(
            f"parallel='none' cannot use world_size={world_size}: it is one process; "
            "use the component ddp or fsdp, or --parallel ddp"
        )
    if parallel == "fsdp" and not is_distributed:
        raise ConfigError("parallel='fsdp' needs a process group: start it with the component fsdp or with torchrun")


def resolve_precision(asked: Precision, device: torch.device) -> Precision:
    """Return the precision that will be used on the device: never ``auto``.

    Raises:
        ConfigError: the device cannot do what was asked.
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
            f"precision='bf16' is not in the hardware of {torch.cuda.get_device_name(device)}: it needs compute "
            "capability 8.0; use --precision fp16"
        )
    return asked
