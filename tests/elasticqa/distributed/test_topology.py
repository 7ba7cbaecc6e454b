"""The topology of the environment, and the collectives of small values."""

from typing import Any

import pytest
import torch

from elasticqa.config.train_config import Parallel
from elasticqa.distributed.topology import Topology, check_parallel, resolve_precision
from elasticqa.errors import ConfigError
from tests.support.ranks import run_on_ranks

TORCHRUN = {
    "RANK": "5",
    "LOCAL_RANK": "1",
    "GROUP_RANK": "2",
    "WORLD_SIZE": "6",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_WORLD_SIZE": "3",
    "TORCHELASTIC_RESTART_COUNT": "4",
    "MASTER_ADDR": "localhost",
}

needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="the rank would take a GPU")


@needs_no_gpu
def test_topology_is_read_from_the_variables_of_torchrun() -> None:
    assert Topology.from_env(TORCHRUN) == Topology(
        rank=5,
        local_rank=1,
        node_rank=2,
        world_size=6,
        local_world_size=2,
        num_nodes=3,
        restart_count=4,
        device=torch.device("cpu"),
        is_distributed=True,
    )


@pytest.mark.parametrize("environ", [{}, {"WORLD_SIZE": "4", "LOCAL_RANK": "3"}, {"RANK": "3", "WORLD_SIZE": "4"}])
def test_process_without_torchrun_is_a_world_of_one(environ: dict[str, str]) -> None:
    topology = Topology.from_env(environ)
    assert (topology.rank, topology.world_size, topology.local_rank) == (0, 1, 0)
    assert topology.is_main
    assert topology.is_node_main
    assert not topology.is_distributed


@pytest.mark.parametrize(("name", "value"), [("RANK", "x"), ("WORLD_SIZE", "0"), ("LOCAL_RANK", "-1"), ("RANK", "²")])
def test_variable_that_is_not_a_count_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}='{value}'"):
        Topology.from_env({**TORCHRUN, name: value})


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({**TORCHRUN, "ELASTICQA_MIN_NODES": "4"}, "GROUP_WORLD_SIZE=3 is less than ELASTICQA_MIN_NODES=4"),
        ({**TORCHRUN, "ELASTICQA_NPROC_PER_NODE": "3"}, "LOCAL_WORLD_SIZE=2 is less than ELASTICQA_NPROC_PER_NODE=3"),
        ({"ELASTICQA_MIN_NODES": "2"}, "GROUP_WORLD_SIZE=1 is less than ELASTICQA_MIN_NODES=2"),
    ],
)
def test_world_smaller_than_the_launch_asked_for_is_refused(environ: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=f"{message}.*--nnodes"):
        Topology.from_env(environ)


@needs_no_gpu
def test_world_of_the_size_that_the_launch_asked_for_is_accepted() -> None:
    promised = {**TORCHRUN, "ELASTICQA_MIN_NODES": "3", "ELASTICQA_NPROC_PER_NODE": "2"}
    assert Topology.from_env(promised) == Topology.from_env(TORCHRUN)


@needs_no_gpu
@pytest.mark.parametrize(
    ("rank", "local_rank", "is_main", "is_node_main"),
    [("0", "0", True, True), ("2", "0", False, True), ("3", "1", False, False)],
)
def test_one_rank_of_the_run_and_one_of_each_node_is_main(
    rank: str, local_rank: str, is_main: bool, is_node_main: bool
) -> None:
    topology = Topology.from_env({**TORCHRUN, "RANK": rank, "LOCAL_RANK": local_rank})
    assert (topology.is_main, topology.is_node_main) == (is_main, is_node_main)


def collectives(topology: Topology) -> dict[str, Any]:
    tensor = torch.tensor([float(topology.rank)])
    topology.all_reduce_sum(tensor)
    topology.barrier()
    return {
        "broadcast": topology.broadcast(f"of {topology.rank}"),
        "gather": topology.gather(topology.rank * 10 if topology.rank != 1 else None),
        "first": topology.first_value(topology.rank if topology.rank else None),
        "none": topology.first_value(None),
        "sum": tensor.item(),
        "on_main": topology.on_main(lambda: topology.rank),
    }


@pytest.mark.slow
def test_collectives_of_three_ranks() -> None:
    main, *others = run_on_ranks(3, collectives)
    expected = {"broadcast": "of 0", "first": 1, "none": None, "sum": 3.0, "on_main": 0}
    assert main == {**expected, "gather": [0, 20]}
    assert others == [{**expected, "gather": []}] * 2


def test_collectives_of_a_single_process() -> None:
    alone = collectives(Topology.from_env({}))
    assert alone == {"broadcast": "of 0", "gather": [0], "first": None, "none": None, "sum": 0.0, "on_main": 0}


def failing_on_main(topology: Topology) -> str:
    def refuse() -> int:
        raise ConfigError(f"refused by rank {topology.rank}")

    try:
        topology.on_main(refuse)
    except ConfigError as error:
        return str(error)
    return "accepted"


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [1, 2])
def test_error_of_the_main_rank_is_raised_on_every_rank(world_size: int) -> None:
    assert run_on_ranks(world_size, failing_on_main) == ["refused by rank 0"] * world_size


def refusal_of(topology: Topology, parallel: Parallel) -> str:
    try:
        check_parallel(parallel, topology.world_size, is_distributed=topology.is_distributed)
    except ConfigError as error:
        return str(error)
    return "accepted"


@pytest.mark.slow
def test_strategy_that_needs_other_processes_is_refused() -> None:
    assert "parallel='fsdp' needs a process group" in refusal_of(Topology.from_env({}), "fsdp")
    for message in run_on_ranks(2, refusal_of, "none"):
        assert "parallel='none' cannot use world_size=2" in message


def test_cpu_uses_fp32_or_bf16() -> None:
    cpu = torch.device("cpu")
    assert [resolve_precision(asked, cpu) for asked in ("auto", "fp32", "bf16")] == ["fp32", "fp32", "bf16"]
    with pytest.raises(ConfigError, match=r"precision='fp16' needs a GPU.*--precision fp32"):
        resolve_precision("fp16", cpu)
