"""What each node of the check job does: tells its facts, then measures with the others; one line of JSON each.

A program of its own: Slurm starts it, and what it prints reaches the login node without a file system.
"""

import argparse
import json
import os
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

from elasticqa.cli.doctor.cluster import MARKER
from elasticqa.distributed.addresses import endpoint, first_of, job_port
from elasticqa.distributed.node_facts import node_facts
from elasticqa.errors import ConfigError
from elasticqa.run.home import HomeError, home

TIMEOUT = timedelta(seconds=60)
NUM_REPEATS = 5
CPU_BYTES, GPU_BYTES = 1 << 24, 1 << 28
"""All-reduced: of the size of a bucket of gradients, and of the gradients of BERT-base in 16 bits."""


def main(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Tell and measure; the exit status is 0 whatever is found."""
    parser = argparse.ArgumentParser(prog="python -m elasticqa.cli.doctor.node", allow_abbrev=False)
    parser.add_argument("--mark", required=True, help="name of the file that the login node left in the home directory")
    mark = parser.parse_args(argv).mark
    number, num_nodes = int(environ["SLURM_NODEID"]), int(environ["SLURM_STEP_NUM_NODES"])
    try:
        host = first_of(environ["SLURM_STEP_NODELIST"])
    except ConfigError as error:
        _tell("trouble", {"host": socket.gethostname(), "error": str(error)})
        return 0
    _tell("node", _facts(number, host, mark, environ))
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
        _tell("trouble", {"host": socket.gethostname(), "error": str(error).strip().splitlines()[0]})
        return 0
    if number == 0:
        _tell("measured", measured)
    return 0


def measure(num_nodes: int) -> dict[str, Any]:
    """Return clocks, bandwidth and interface; every node must call this.

    Args:
        num_nodes: of the default process group, with one process each.
    """
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
        # The bytes that each node sends and receives in a ring, over the median time.
        "bytes_per_s": 2 * (num_nodes - 1) / num_nodes * num_bytes / seconds,
        "interface": max(moved, key=lambda name: moved[name]),
        "interface_bytes": max(moved.values()),
    }


def _clock_offsets(num_nodes: int) -> list[float]:
    """Return by how many seconds each node's clock is ahead of the first one's; a collective.

    Of several looks the one that tells least: a process that waits for a CPU looks late.
    """
    looks = []
    for _ in range(NUM_REPEATS):
        times = [0.0] * num_nodes
        dist.barrier()
        dist.all_gather_object(times, time.time())
        looks.append([then - times[0] for then in times])
    return [min(offsets, key=abs) for offsets in zip(*looks, strict=True)]


def transferred_bytes(root: Path = Path("/")) -> dict[str, int]:
    """Return what each network interface and InfiniBand port has sent and received so far."""
    moved = {}
    for line in (root / "proc/net/dev").read_text(encoding="ascii").splitlines()[2:]:
        name, _, counters = line.partition(":")
        fields = counters.split()
        moved[name.strip()] = int(fields[0]) + int(fields[8])
    for port in (root / "sys/class/infiniband").glob("*/ports/*/counters"):
        # They count words of four bytes.
        words = sum(int((port / f"port_{way}_data").read_text(encoding="ascii")) for way in ("xmit", "rcv"))
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
        # Its value is awaited, since NCCL only queues the work.
        tensor[0].item()
        times.append(time.perf_counter() - started_at)
    # The first one makes the connections.
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
    except (HomeError, OSError) as error:
        facts["sees_home"], facts["home_error"] = False, str(error)
    return facts


def _tell(kind: str, message: Mapping[str, Any]) -> None:
    sys.stdout.write(f"{MARKER}{json.dumps({'kind': kind, **message})}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
