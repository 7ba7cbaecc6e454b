"""TorchX components that start a training run, on Slurm or on this machine.

Their arguments are for the launch only; options after ``--`` go to the trainer unchanged.
"""

import os
import re
import sys
from typing import Dict, List, Optional

from torchx import specs
from torchx.specs.finder import ComponentValidationException
from ulid import ULID

_FORWARDED = ("ELASTICQA_HOME", "ELASTICQA_DB_URL", "HF_HOME", "HF_HUB_OFFLINE", "OMP_NUM_THREADS")

_MAX_RETRIES = 100
"""Maximum number of requeues after a time limit or a preemption; a long run may need many."""


def baseline(
    *script_args: str,
    name: str = "baseline",
    cpu: int = 2,
    gpu: int = 0,
    memMB: int = 4096,
    env: Optional[Dict[str, str]] = None,
) -> specs.AppDef:
    """Train in one process, as the reference for distributed runs.

    Args:
        script_args: training options, after ``--`` (see ``elasticqa train --help``).
        name: name of the job.
        cpu: CPUs to request.
        gpu: GPUs to request.
        memMB: memory to request, in MiB.
        env: environment variables for the process, NAME=VALUE,...
    """
    resource = specs.Resource(cpu=cpu, gpu=gpu, memMB=memMB)
    return _app(name, "1", ["--parallel", "none", *script_args], resource, env)


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
    """Train with a model replica in each process (DistributedDataParallel).

    Args:
        script_args: training options, after ``--`` (see ``elasticqa train --help``).
        nnodes: number of nodes, or MIN:MAX for an elastic job.
        nproc_per_node: processes per node: one per GPU, or any number on CPUs.
        max_restarts: how often a failed worker group is restarted.
        name: name of the job.
        cpu: CPUs to request per node.
        gpu: GPUs to request per node.
        memMB: memory to request per node, in MiB.
        env: environment variables for every process, NAME=VALUE,...
    """
    resource = specs.Resource(cpu=cpu, gpu=gpu, memMB=memMB)
    launch = _launch_arguments(nnodes, nproc_per_node, max_restarts)
    return _app(name, nnodes, [*launch, "--parallel", "ddp", *script_args], resource, env)


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
        script_args: training options, after ``--`` (see ``elasticqa train --help``).
        nnodes: number of nodes, or MIN:MAX for an elastic job.
        nproc_per_node: processes per node: one per GPU, or any number on CPUs.
        max_restarts: how often a failed worker group is restarted.
        name: name of the job.
        cpu: CPUs to request per node.
        gpu: GPUs to request per node.
        memMB: memory to request per node, in MiB.
        env: environment variables for every process, NAME=VALUE,...
    """
    resource = specs.Resource(cpu=cpu, gpu=gpu, memMB=memMB)
    launch = _launch_arguments(nnodes, nproc_per_node, max_restarts)
    return _app(name, nnodes, [*launch, "--parallel", "fsdp", *script_args], resource, env)


def _launch_arguments(nnodes: str, nproc_per_node: int, max_restarts: int) -> List[str]:
    return ["--nnodes", nnodes, "--nproc-per-node", str(nproc_per_node), "--max-restarts", str(max_restarts)]


def _app(
    name: str, nnodes: str, arguments: List[str], resource: specs.Resource, env: Optional[Dict[str, str]]
) -> specs.AppDef:
    match = re.fullmatch(r"(?:([0-9]+):)?([0-9]+)", nnodes)
    if match is None or not 1 <= int(match[1] or match[2]) <= int(match[2]):
        # torchx prints any other exception as a traceback.
        raise ComponentValidationException(
            f"nnodes={nnodes!r} is not N or MIN:MAX with 1 <= MIN <= MAX: write --nnodes 2 or --nnodes 1:4"
        )
    forwarded = {key: os.environ[key] for key in _FORWARDED if key in os.environ}
    # Set at submission, so that a requeued job resumes the same run.
    forwarded["ELASTICQA_RUN_ID"] = os.environ.get("ELASTICQA_RUN_ID", str(ULID()))
    gpus = ["--gpus", str(resource.gpu)] if resource.gpu else []
    return specs.AppDef(
        name=name,
        roles=[
            specs.Role(
                name=name,
                image="",
                # Use the full path, which works without an activated environment.
                entrypoint=sys.executable,
                args=["-m", "elasticqa.cli.launch", *gpus, *arguments],
                env={**forwarded, "PYTHONUNBUFFERED": "1", **(env or {})},
                min_replicas=int(match[1] or match[2]),
                num_replicas=int(match[2]),
                max_retries=_MAX_RETRIES,
                resource=resource,
            )
        ],
    )
