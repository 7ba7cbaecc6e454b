"""What a component starts on each node: checks the request, prepares the data once, then trains or becomes torchrun.

A wrong request ends in seconds with one line, before any process group exists.
"""

import argparse
import importlib
import os
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import torch

from elasticqa.config.batch_plan import batch_plan
from elasticqa.config.command_line import parse_config
from elasticqa.config.environment import (
    ENVIRONMENT,
    FIRST_HOST_VARIABLE,
    JOB_HANDLE_VARIABLE,
    JOINED_JOB_VARIABLE,
    MIN_NODES_VARIABLE,
    NPROC_PER_NODE_VARIABLE,
    RUN_ID_VARIABLE,
)
from elasticqa.config.train_config import TrainConfig
from elasticqa.data.task import load_task
from elasticqa.distributed.addresses import address_towards, endpoint, first_of, job_port
from elasticqa.distributed.node_facts import node_facts
from elasticqa.distributed.process_environment import complete, enter, own_environment
from elasticqa.distributed.topology import check_parallel, resolve_precision
from elasticqa.elastic.preflight import JobNode, check_joining_node, check_starting_nodes
from elasticqa.errors import ConfigError, DataError, ExitCode, shown
from elasticqa.run.home import HomeError, home, new_run_id

_PACES = "last_call_timeout=5,keep_alive_interval=2,keep_alive_max_attempt=6"
"""Seconds that MIN nodes wait for more, and between the signs of life of a node, of which 6 may be missing."""


@dataclass(frozen=True)
class Launch:
    """How many agents and workers: what torchrun is told."""

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    max_restarts: int

    @classmethod
    def of(cls, nnodes: str, nproc_per_node: int, max_restarts: int) -> "Launch":
        """Return the launch for ``N`` or ``MIN:MAX`` nodes.

        Raises:
            ConfigError: the numbers make no job.
        """
        parts = nnodes.split(":")
        if not all(part.isascii() and part.isdigit() and len(part) < 7 for part in parts) or len(parts) > 2:
            raise ConfigError(f"nnodes={shown(nnodes)} is not N or MIN:MAX: write --nnodes 2 or --nnodes 1:4")
        fewest, most = int(parts[0]), int(parts[-1])
        if not 1 <= fewest <= most:
            raise ConfigError(f"nnodes={nnodes!r} must have 1 <= MIN <= MAX: write --nnodes 1:4")
        if nproc_per_node < 1:
            raise ConfigError(
                f"nproc_per_node={nproc_per_node} is too small: at least one process a node; --nproc_per_node 1"
            )
        if max_restarts < 0:
            raise ConfigError(f"max_restarts={max_restarts} is negative: give 0 or more with --max_restarts")
        return cls(fewest, most, nproc_per_node, max_restarts)


def torchrun_options(launch: Launch, environ: Mapping[str, str]) -> list[str]:
    """Return torchrun's options for this node.

    One node keeps its rendezvous to itself. Several meet at the job's first node, on a port that follows from the job
    id: two jobs that share a node must not share a store.
    """
    if launch.max_nodes == 1:
        meeting_point, job_id = endpoint("localhost", 0), "local"
    else:
        job_id = _job_of(environ)
        meeting_point = endpoint(_first_host(environ), job_port(job_id))
    return [
        f"--nnodes={launch.min_nodes}:{launch.max_nodes}",
        f"--nproc-per-node={launch.nproc_per_node}",
        f"--max-restarts={launch.max_restarts}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={meeting_point}",
        f"--rdzv-id={job_id}",
        f"--rdzv-conf={_PACES}",
        # SIGUSR1 is the scheduler's warning; an agent that does not handle it dies of it.
        "--signals-to-handle=SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1",
    ]


def own_address(launch: Launch, environ: Mapping[str, str]) -> str:
    """Return where the other nodes reach this one: the address that it has towards the first node.

    The first node itself is reached by the name that all of them have for it. Without an answer torchrun would tell
    the name that this machine believes to have, which the others may not find.

    Raises:
        ConfigError: this node does not find the first one.
    """
    if launch.max_nodes == 1:
        return "localhost"
    return address_towards(_first_host(environ))


def _job_of(environ: Mapping[str, str]) -> str:
    """Return the id of the job that this node works for: its own, or the one that it was asked to join."""
    for name in (JOINED_JOB_VARIABLE, "SLURM_JOB_ID"):
        if environ.get(name):
            return environ[name]
    return environ.get(JOB_HANDLE_VARIABLE, "job").rsplit("/", 1)[-1]


def _first_host(environ: Mapping[str, str]) -> str:
    """Return the name of the job's first node."""
    if environ.get(FIRST_HOST_VARIABLE):
        return environ[FIRST_HOST_VARIABLE]
    node_list = environ.get("SLURM_JOB_NODELIST_HET_GROUP_0") or environ.get("SLURM_JOB_NODELIST")
    if not node_list:
        return "localhost"
    return first_of(node_list)


def run_preflight(launch: Launch, refusal: str | None, environ: Mapping[str, str]) -> None:
    """Compare the nodes that Slurm starts together, or this one with those that it joins; all of them call this.

    Args:
        launch: of the job.
        refusal: why this node cannot run it.
        environ: of this process.

    Raises:
        ConfigError: they do not fit; in the same line on all of them.
    """
    job_id, first_host = _job_of(environ), _first_host(environ)
    facts = node_facts(int(environ.get("SLURM_NODEID", "0")), first_host, refusal, environ)
    if environ.get(JOINED_JOB_VARIABLE):
        check_joining_node(job_id, facts, home(environ))
        return
    node = JobNode(
        job_id=job_id,
        number=facts["number"],
        num_nodes=int(environ.get("SLURM_STEP_NUM_NODES", "1")),
        first_host=first_host,
        # As Slurm knows the node that started the tasks: a name that does not resolve is to be told, not met.
        first_address=environ.get("SLURM_LAUNCH_NODE_IPADDR", first_host)
        if FIRST_HOST_VARIABLE in environ
        else first_host,
        port=job_port(job_id, 0.5),
    )
    check_starting_nodes(node, facts, home(environ), launch.min_nodes)


def check(config: TrainConfig, launch: Launch | None, num_gpus: int) -> None:
    """Refuse what cannot run, and leave the features in the cache for the ranks.

    Args:
        config: of the run.
        launch: None for a single process.
        num_gpus: asked for on each node.

    Raises:
        ConfigError, DataError, HomeError: each of one line.
    """
    if num_gpus > torch.cuda.device_count():
        raise ConfigError(
            f"gpu={num_gpus} but torch {torch.__version__} sees {torch.cuda.device_count()} on {socket.gethostname()}: "
            "a run that asks for GPUs does not train on the CPU instead; see nvidia-smi on that node, install a torch "
            "with CUDA, or leave --gpu out"
        )
    world_size = launch.min_nodes * launch.nproc_per_node if launch else 1
    check_parallel(config.parallel, world_size, is_distributed=launch is not None)
    resolve_precision(config.precision, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    task = load_task(config, home())
    batch_plan(config, len(task.train), world_size)


def main(argv: Sequence[str]) -> int:
    """Check, then replace this process by torchrun, or train in it where no nodes are named."""
    parser = argparse.ArgumentParser(prog="python -m elasticqa.cli.launch", add_help=False, allow_abbrev=False)
    parser.add_argument("--nnodes")
    parser.add_argument("--nproc-per-node", type=int, default=1)
    parser.add_argument("--max-restarts", type=int, default=3)
    parser.add_argument("--gpus", type=int, default=0)
    known, rest = parser.parse_known_args(argv)
    environ = own_environment(ENVIRONMENT)
    # Made once, so that the workers that torchrun starts again go on in the run that they began.
    environ.setdefault(RUN_ID_VARIABLE, new_run_id())
    try:
        launch = None
        if known.nnodes is not None:
            launch = Launch.of(known.nnodes, known.nproc_per_node, known.max_restarts)
        _check_all(parse_config(rest), launch, known.gpus, environ)
        for name in (MIN_NODES_VARIABLE, NPROC_PER_NODE_VARIABLE):
            environ.pop(name, None)
        options = []
        if launch is not None:
            options = [*torchrun_options(launch, environ), f"--local-addr={own_address(launch, environ)}"]
            environ[MIN_NODES_VARIABLE] = str(launch.min_nodes)
            environ[NPROC_PER_NODE_VARIABLE] = str(launch.nproc_per_node)
    except (ConfigError, DataError, HomeError) as error:
        sys.stderr.write(f"elasticqa: {error}\n")
        return ExitCode.BAD_REQUEST
    if launch is None:
        return _train(rest, environ)
    command = [sys.executable, "-m", "elasticqa.elastic.torchrun", *options, "-m", "elasticqa.training.main", *rest]
    return _become(command, environ, launch.nproc_per_node)


def _check_all(config: TrainConfig, launch: Launch | None, num_gpus: int, environ: Mapping[str, str]) -> None:
    """Check this node, and with the others where Slurm starts several: what one refuses, all refuse at once."""
    refusal: ConfigError | DataError | None = None
    try:
        check(config, launch, num_gpus)
    except (ConfigError, DataError) as error:
        refusal = error
    if launch is not None and launch.max_nodes > 1 and environ.get("SLURM_NODEID"):
        run_preflight(launch, None if refusal is None else str(refusal), environ)
    if refusal is not None:
        raise refusal


def _train(argv: Sequence[str], environ: dict[str, str]) -> int:
    """Train in this process, which has imported half of what that takes, and return its exit status."""
    complete(environ, 1)
    enter(environ)
    try:
        status: int = importlib.import_module("elasticqa.training.main").main(argv)
    except BrokenPipeError:
        # A command that prints has done its work when nobody reads any more; a run that ends here has failed.
        traceback.print_exc()
        return ExitCode.FAILED
    return status


def _become(command: list[str], environ: dict[str, str], num_processes: int) -> NoReturn:
    """Replace this process by the command, whose processes share the CPUs of this node."""
    complete(environ, num_processes)
    sys.stdout.flush()
    os.execve(command[0], command, environ)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
