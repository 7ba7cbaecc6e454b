"""Functions run on real ranks: processes that torch.distributed.elastic starts, in a gloo process group."""

import multiprocessing
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from elasticqa.distributed.topology import Topology

# Ranks are forked from a server that has imported torch and has no thread of its own yet.
multiprocessing.set_forkserver_preload(["elasticqa.training.builder", "elasticqa.checkpoint.export"])


def run_on_ranks(world_size: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Return what ``work(topology, *arguments)`` returned on each rank; an error of a rank is raised here.

    Args:
        world_size: ranks, all on this machine.
        work: a function of a module, which the ranks import.
        arguments: picklable, as are the results.
    """
    launch = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=world_size,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        monitor_interval=0.05,
        start_method="forkserver",
    )
    results = elastic_launch(launch, _rank)(work, arguments)
    return [results[rank] for rank in range(world_size)]


def _rank(work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    torch.set_num_threads(1)
    topology = Topology.from_env()
    with topology.process_group(timedelta(minutes=2)):
        return work(topology, *arguments)
