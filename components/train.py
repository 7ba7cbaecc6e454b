"""TorchX components that start a training run, on Slurm or on this machine, with the same command.

They know launch facts only; everything after ``--`` goes to the trainer unchanged:

    torchx run -s local_cwd components/train.py:ddp --nproc_per_node 2 -- --recipe demo
    torchx run -s slurm components/train.py:ddp --nnodes 2
"""

import os
import sys
from typing import Dict, List, Optional

from torchx import specs
from ulid import ULID

_CARRIED = ("ELASTICQA_HOME", "ELASTICQA_DB_URL", "HF_HOME", "HF_HUB_OFFLINE", "OMP_NUM_THREADS")


def baseline(
    *script_args: str,
    name: str = "baseline",
    cpu: int = 2,
    gpu: int = 0,
    memMB: int = 4096,
    env: Optional[Dict[str, str]] = None,
) -> specs.AppDef:
    """Train in one process, the reference that distributed runs are compared with.

    Args:
        script_args: options of the trainer, after ``--`` (``elasticqa train --help`` lists them).
        name: of the job.
        cpu: CPUs to ask for.
        gpu: GPUs to ask for.
        memMB: memory to ask for, in MiB.
        env: variables for the process, NAME=VALUE,...
    """
    entry = ["-m", "elasticqa.launch", "--parallel", "none", *script_args]
    return _app(name, entry, 1, specs.Resource(cpu=cpu, gpu=gpu, memMB=memMB), env)


def ddp(
    *script_args: str,
    nnodes: str = "1",
    nproc_per_node: int = 1,
    max_restarts: int = 3,
    name: str = "ddp",
    cpu: int = 2,
    gpu: int = 0,
    memMB: int = 4096,
    env: Optional[Dict[str, str]] = None,
) -> specs.AppDef:
    """Train with one model replica a process (DistributedDataParallel).

    Args:
        script_args: options of the trainer, after ``--`` (``elasticqa train --help`` lists them).
        nnodes: nodes, or MIN:MAX for an elastic job.
        nproc_per_node: processes a node: one a GPU, or any number on a CPU.
        max_restarts: times that a failed worker group is started again.
        name: of the job.
        cpu: CPUs to ask for, per node.
        gpu: GPUs to ask for, per node.
        memMB: memory to ask for, per node, in MiB.
        env: variables for every process, NAME=VALUE,...
    """
    resource = specs.Resource(cpu=cpu, gpu=gpu, memMB=memMB)
    entry = _distributed("ddp", nnodes, nproc_per_node, max_restarts, script_args)
    return _app(name, entry, _most(nnodes), resource, env)


def fsdp(
    *script_args: str,
    nnodes: str = "1",
    nproc_per_node: int = 1,
    max_restarts: int = 3,
    name: str = "fsdp",
    cpu: int = 2,
    gpu: int = 0,
    memMB: int = 4096,
    env: Optional[Dict[str, str]] = None,
) -> specs.AppDef:
    """Train with parameters, gradients and optimizer state sharded over all processes (FSDP2).

    Args:
        script_args: options of the trainer, after ``--`` (``elasticqa train --help`` lists them).
        nnodes: nodes, or MIN:MAX for an elastic job.
        nproc_per_node: processes a node: one a GPU, or any number on a CPU.
        max_restarts: times that a failed worker group is started again.
        name: of the job.
        cpu: CPUs to ask for, per node.
        gpu: GPUs to ask for, per node.
        memMB: memory to ask for, per node, in MiB.
        env: variables for every process, NAME=VALUE,...
    """
    resource = specs.Resource(cpu=cpu, gpu=gpu, memMB=memMB)
    entry = _distributed("fsdp", nnodes, nproc_per_node, max_restarts, script_args)
    return _app(name, entry, _most(nnodes), resource, env)


def _distributed(
    parallel: str, nnodes: str, nproc_per_node: int, max_restarts: int, script_args: "tuple[str, ...]"
) -> List[str]:
    launch = [
        "--nnodes",
        nnodes,
        "--nproc-per-node",
        str(nproc_per_node),
        "--max-restarts",
        str(max_restarts),
    ]
    return ["-m", "elasticqa.launch", *launch, "--parallel", parallel, *script_args]


def _most(nnodes: str) -> int:
    return int(nnodes.split(":")[-1])


def _app(
    name: str, entry: List[str], num_replicas: int, resource: specs.Resource, env: Optional[Dict[str, str]]
) -> specs.AppDef:
    carried = {key: os.environ[key] for key in _CARRIED if key in os.environ}
    # The id is made at submission, so that a requeued job goes on in the same run.
    carried["ELASTICQA_RUN_ID"] = os.environ.get("ELASTICQA_RUN_ID", str(ULID()))
    return specs.AppDef(
        name=name,
        roles=[
            specs.Role(
                name=name,
                image="",
                # By path: outside an activated environment no `python` or `torchrun` of ours is found.
                entrypoint=sys.executable,
                args=entry,
                env={**carried, "PYTHONUNBUFFERED": "1", **(env or {})},
                num_replicas=num_replicas,
                resource=resource,
            )
        ],
    )
