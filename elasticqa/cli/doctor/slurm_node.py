"""The program of each node in the check job: print facts of the node, then measure with the others, as JSON lines.

Its output reaches the login node through srun, without a shared file system.
"""

import argparse
import json
import socket
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from elasticqa.cli.doctor.slurm_job import MARKER
from elasticqa.config.environment import ENVIRONMENT
from elasticqa.distributed.addresses import endpoint, first_host_of, job_port
from elasticqa.distributed.facts import node_facts
from elasticqa.errors import ConfigError, first_line
from elasticqa.run.home import home

TIMEOUT = timedelta(seconds=60)
NUM_REPEATS = 5
CPU_BYTES, GPU_BYTES = 1 << 24, 1 << 28
"""Sizes of the all-reduce: a bucket of gradients, and the gradients of BERT-base in 16 bits."""


def main(argv: Sequence[str], environ: Mapping[str, str] = ENVIRONMENT) -> int:
    """Print the messages of this node; the exit status is 0 even if a check fails."""
    parser = argparse.ArgumentParser(prog="elasticqa.cli.doctor.slurm_node", allow_abbrev=False)
    parser.add_argument(
        "--mark", required=True, help="name of the file that the login node wrote to the home directory"
    )
    mark = parser.parse_args(argv).mark
    number, num_nodes = int(environ["SLURM_NODEID"]), int(environ["SLURM_STEP_NUM_NODES"])
    try:
        host = first_host_of(environ["SLURM_STEP_NODELIST"])
    except ConfigError as error:
        _print("error", {"host": socket.gethostname(), "error": str(error)})
        return 0
    _print("node", _facts(number, host, mark, environ))
    port = job_port(environ["SLURM_JOB_ID"], 0.25)
    try:
        dist.init_process_group(
            "gloo", init_method=f"tcp://{endpoint(host, port)}", rank=number, world_size=num_nodes, timeout=TIMEOUT
        )
        try:
            measured = measure(num_nodes)
        finally:
            dist.destroy_process_group()
    except RuntimeError as error:
        _print("error", {"host": socket.gethostname(), "error": first_line(error)})
        return 0
    if number == 0:
        _print("measurement", measured)
    return 0


def measure(num_nodes: int) -> dict[str, Any]:
    """Return clock offsets, bandwidth and network interface of one process per node; a collective."""
    num_gpus = [0] * num_nodes
    dist.all_gather_object(num_gpus, torch.cuda.device_count())
    has_gpus = all(num_gpus)
    offsets = _clock_offsets(num_nodes)
    group = dist.new_group(backend="nccl" if has_gpus else "gloo")
    before = transferred_bytes()
    seconds, num_bytes = _all_reduce(torch.device("cuda", 0) if has_gpus else torch.device("cpu"), group)
    moved = {name: value - before.get(name, 0) for name, value in transferred_bytes().items()}
    return {
        "clock_offsets_s": offsets,
        "backend": "nccl" if has_gpus else "gloo",
        "num_bytes": num_bytes,
        # Bytes that each node sends in a ring all-reduce, over the median time.
        "bytes_per_s": 2 * (num_nodes - 1) / num_nodes * num_bytes / seconds,
        "interface": max(moved, key=lambda name: moved[name]),
        "interface_bytes": max(moved.values()),
    }


def _clock_offsets(num_nodes: int) -> list[float]:
    """Return by how many seconds each node's clock is ahead of the first node's; a collective.

    Takes the smallest of several samples: a process that waits for a CPU samples late.
    """
    samples = []
    for _ in range(NUM_REPEATS):
        times = [0.0] * num_nodes
        dist.barrier()
        dist.all_gather_object(times, time.time())
        samples.append([value - times[0] for value in times])
    return [min(offsets, key=abs) for offsets in zip(*samples, strict=True)]


def transferred_bytes(root: Path = Path("/")) -> dict[str, int]:
    """Return the bytes that each network interface and InfiniBand port has sent and received so far."""
    moved = {}
    for line in (root / "proc/net/dev").read_text(encoding="ascii").splitlines()[2:]:
        name, _, counters = line.partition(":")
        fields = counters.split()
        moved[name.strip()] = int(fields[0]) + int(fields[8])
    for port in (root / "sys/class/infiniband").glob("*/ports/*/counters"):
        # These counters count words of four bytes.
        words = sum(int((port / f"port_{direction}_data").read_text(encoding="ascii")) for direction in ("xmit", "rcv"))
        moved[f"{port.parents[2].name} (InfiniBand)"] = 4 * words
    return moved


def _all_reduce(device: torch.device, group: dist.ProcessGroup) -> tuple[float, int]:
    """Return the median seconds of an all-reduce, and its size in bytes; a collective."""
    num_bytes = GPU_BYTES if device.type == "cuda" else CPU_BYTES
    tensor = torch.ones(num_bytes // 4, device=device)
    times = []
    for _ in range(NUM_REPEATS + 1):
        started_at = time.perf_counter()
        dist.all_reduce(tensor, dist.ReduceOp.MAX, group)
        # Wait for the result: NCCL only queues the work.
        tensor[0].item()
        times.append(time.perf_counter() - started_at)
    # Leave out the first all-reduce, which opens the connections.
    return statistics.median(times[1:]), num_bytes


def _facts(number: int, host: str, mark: str, environ: Mapping[str, str]) -> dict[str, Any]:
    facts = node_facts(number, host, None, environ)
    facts["num_gpus"] = torch.cuda.device_count()
    try:
        directory = home(environ) / "slurm"
        facts["home"] = str(directory.parent)
        facts["sees_home"] = (directory / mark).is_file()
        directory.mkdir(exist_ok=True)
        (directory / f"{mark}-{number}").write_text(facts["host"], encoding="utf-8")
    except (ConfigError, OSError) as error:
        facts["sees_home"], facts["home_error"] = False, str(error)
    return facts


def _print(kind: str, message: Mapping[str, Any]) -> None:
    sys.stdout.write(f"{MARKER}{json.dumps({'kind': kind, **message})}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
