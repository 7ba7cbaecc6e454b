"""`elasticqa train`, and the program that a component starts on each node.

Checks the request, computes the features once, then trains in this process or replaces itself by torchrun. A wrong
request ends within seconds with one line, before a process group exists.
"""

import argparse
import importlib
import os
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
from elasticqa.distributed.addresses import address_towards, endpoint, first_host_of, job_port
from elasticqa.distributed.facts import node_facts
from elasticqa.distributed.process_environment import replace_environment, set_torch_defaults, without_outer_allocation
from elasticqa.distributed.topology import check_parallel, resolve_precision
from elasticqa.elastic.preflight import JobNode, check_joining_node, check_starting_nodes
from elasticqa.errors import ConfigError, DataError, ExitCode, shown
from elasticqa.run.home import home, new_run_id

_TRAINER = "elasticqa.training.main"
_RENDEZVOUS_CONF = "last_call_timeout=5,keep_alive_interval=2,keep_alive_max_attempt=6"
"""Seconds that MIN nodes wait for more nodes, seconds between keep-alives, and how many keep-alives may be missed."""


@dataclass(frozen=True)
class Launch:
    """Number of nodes, workers and restarts."""

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    max_restarts: int

    @classmethod
    def of(cls, nnodes: str, nproc_per_node: int, max_restarts: int) -> "Launch":
        """Return the launch for ``N`` or ``MIN:MAX`` nodes.

        Raises:
            ConfigError: a number is out of range.
        """
        parts = nnodes.split(":")
        if not all(part.isascii() and part.isdigit() and len(part) < 7 for part in parts) or len(parts) > 2:
            raise ConfigError(f"nnodes={shown(nnodes)} is not N or MIN:MAX: write --nnodes 2 or --nnodes 1:4")
        fewest, most = int(parts[0]), int(parts[-1])
        if not 1 <= fewest <= most:
            raise ConfigError(f"nnodes={nnodes!r} must have 1 <= MIN <= MAX: write --nnodes 1:4")
        if nproc_per_node < 1:
            raise ConfigError(
                f"nproc_per_node={nproc_per_node} is too small: start at least one process per node; --nproc_per_node 1"
            )
        if max_restarts < 0:
            raise ConfigError(f"max_restarts={max_restarts} is negative: give 0 or more with --max_restarts")
        return cls(fewest, most, nproc_per_node, max_restarts)


def torchrun_options(launch: Launch, environ: Mapping[str, str]) -> list[str]:
    """Return torchrun's options for this node.

    The rendezvous of several nodes is on the job's first node, at a port computed from the job id, so that two jobs
    that share a node do not share a store.
    """
    if launch.max_nodes == 1:
        rendezvous, job_id = endpoint("localhost", 0), "local"
    else:
        job_id = _job_id(environ)
        rendezvous = endpoint(_first_host(environ), job_port(job_id))
    return [
        f"--nnodes={launch.min_nodes}:{launch.max_nodes}",
        f"--nproc-per-node={launch.nproc_per_node}",
        f"--max-restarts={launch.max_restarts}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={rendezvous}",
        f"--rdzv-id={job_id}",
        f"--rdzv-conf={_RENDEZVOUS_CONF}",
        # SIGUSR1 is the scheduler's warning before a time limit; it kills an agent that does not handle it.
        "--signals-to-handle=SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1",
    ]


def local_address(launch: Launch, environ: Mapping[str, str]) -> str:
    """Return the address at which other nodes reach this one.

    On the first node it is the name that all nodes use for it; on the others, the local address of the route to the
    first node. torchrun's default is the host name, which other nodes may not resolve.

    Raises:
        ConfigError: this node cannot reach the first one.
    """
    if launch.max_nodes == 1:
        return "localhost"
    return address_towards(_first_host(environ))


def _job_id(environ: Mapping[str, str]) -> str:
    """Return the id of the job that this node trains in: the one that it joins, or its own."""
    for name in (JOINED_JOB_VARIABLE, "SLURM_JOB_ID"):
        if environ.get(name):
            return environ[name]
    return environ.get(JOB_HANDLE_VARIABLE, "job").rsplit("/", 1)[-1]


def _first_host(environ: Mapping[str, str]) -> str:
    if environ.get(FIRST_HOST_VARIABLE):
        return environ[FIRST_HOST_VARIABLE]
    node_list = environ.get("SLURM_JOB_NODELIST_HET_GROUP_0") or environ.get("SLURM_JOB_NODELIST")
    if not node_list:
        return "localhost"
    return first_host_of(node_list)


def run_preflight(launch: Launch, refusal: str | None, environ: Mapping[str, str]) -> None:
    """Compare the nodes of a Slurm job, or this node with the running job that it joins; every node must call this.

    ``refusal`` says why this node cannot run the job, or is None.

    Raises:
        ConfigError: the nodes are incompatible; with the same message on all of them.
    """
    job_id, first_host = _job_id(environ), _first_host(environ)
    facts = node_facts(int(environ.get("SLURM_NODEID", "0")), first_host, refusal, environ)
    if environ.get(JOINED_JOB_VARIABLE):
        check_joining_node(job_id, facts, home(environ))
        return
    node = JobNode(
        job_id=job_id,
        number=facts["number"],
        num_nodes=int(environ.get("SLURM_STEP_NUM_NODES", "1")),
        first_host=first_host,
        # Connect to Slurm's address of the first node: this works even if the name does not resolve, and the first node
        # then reports that to all nodes.
        first_address=environ.get("SLURM_LAUNCH_NODE_IPADDR", first_host)
        if FIRST_HOST_VARIABLE in environ
        else first_host,
        port=job_port(job_id, 0.5),
    )
    check_starting_nodes(node, facts, home(environ), launch.min_nodes)


def check(config: TrainConfig, launch: Launch | None, num_gpus: int) -> None:
    """Refuse a request that cannot run, and compute the features into the cache for the ranks.

    ``launch`` is None for a single process; ``num_gpus`` are requested per node.

    Raises:
        ConfigError, DataError: with a message of one line.
    """
    if num_gpus > torch.cuda.device_count():
        raise ConfigError(
            f"gpu={num_gpus} but torch {torch.__version__} sees {torch.cuda.device_count()} on {socket.gethostname()}: "
            "a run that asks for GPUs does not train on the CPU instead; check nvidia-smi on that node, install a "
            "torch with CUDA, or leave --gpu out"
        )
    world_size = launch.min_nodes * launch.nproc_per_node if launch else 1
    check_parallel(config.parallel, world_size, is_distributed=launch is not None)
    resolve_precision(config.precision, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    task = load_task(config, home())
    batch_plan(config, len(task.train), world_size)


def main(argv: Sequence[str]) -> int:
    """Check the request, then train in this process, or replace it by torchrun if ``--nnodes`` is given."""
    parser = argparse.ArgumentParser(prog="elasticqa train", add_help=False, allow_abbrev=False)
    parser.add_argument("--nnodes")
    parser.add_argument("--nproc-per-node", type=int, default=1)
    parser.add_argument("--max-restarts", type=int, default=3)
    parser.add_argument("--gpus", type=int, default=0)
    known, rest = parser.parse_known_args(argv)
    environ = without_outer_allocation(ENVIRONMENT)
    # Choose the run id here, before torchrun starts, so that restarted workers resume the same run.
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
            options = [*torchrun_options(launch, environ), f"--local-addr={local_address(launch, environ)}"]
            environ[MIN_NODES_VARIABLE] = str(launch.min_nodes)
            environ[NPROC_PER_NODE_VARIABLE] = str(launch.nproc_per_node)
    except (ConfigError, DataError) as error:
        sys.stderr.write(f"elasticqa: {error}\n")
        return ExitCode.BAD_REQUEST
    if launch is not None:
        set_torch_defaults(environ, launch.nproc_per_node)
        sys.stdout.flush()
        command = [sys.executable, "-m", "elasticqa.elastic.torchrun", *options, "-m", _TRAINER, *rest]
        os.execve(command[0], command, environ)
    return _train(rest, environ)


def _check_all(config: TrainConfig, launch: Launch | None, num_gpus: int, environ: Mapping[str, str]) -> None:
    """Check this node, and in a Slurm job compare all nodes: if one refuses the request, all do."""
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
    set_torch_defaults(environ, 1)
    replace_environment(environ)
    try:
        status: int = importlib.import_module(_TRAINER).main(argv)
    except BrokenPipeError:
        # `elasticqa.cli.main` ignores BrokenPipeError, which is right for commands that print; a training run has
        # failed.
        traceback.print_exc()
        return ExitCode.FAILED
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
