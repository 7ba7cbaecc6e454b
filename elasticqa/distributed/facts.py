"""Facts about the machine, the software and the scheduler, as the journal's `attempt` line has them."""

import os
import platform
import re
import socket
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from elasticqa.config.environment import JOINED_JOB_VARIABLE

PACKAGES = ("elasticqa", "transformers", "tokenizers", "datasets", "numpy", "triton", "torchx")
COMPARED_VERSIONS = ("python", "torch", "cuda", "elasticqa", "transformers")
"""Must be the same on all nodes of a job."""
GIT_TIMEOUT_S = 10.0


def host_facts(node_rank: int, num_devices: int) -> dict[str, Any]:
    """Return the `host` object of this node; facts that cannot be found are None.

    Devices are the GPUs that the run uses; on a CPU, they are its processes.
    """
    gpu = torch.cuda.get_device_properties(torch.cuda.current_device()) if torch.cuda.is_available() else None
    cpu_name = _cpu_name()
    return {
        "node_rank": node_rank,
        "host_name": socket.gethostname(),
        "device_type": "cuda" if gpu else "cpu",
        "device_name": gpu.name if gpu else cpu_name,
        "num_devices": num_devices,
        "device_memory_bytes": gpu.total_memory if gpu else None,
        "num_cpus": len(os.sched_getaffinity(0)),
        "cpu_name": cpu_name,
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "driver": _text_of(Path("/sys/module/nvidia/version")) if gpu else None,
    }


def software_facts() -> dict[str, str | None]:
    """Return name -> version; None for a package that is not installed."""
    facts: dict[str, str | None] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "platform": platform.platform(),
    }
    return facts | {name: _version_of(name) for name in PACKAGES}


def node_facts(number: int, first_host: str, refusal: str | None, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return facts that are compared with those of the other nodes of the job before it starts.

    Nodes are numbered from 0. A node that cannot run the job states why as its refusal.
    """
    host, versions = socket.gethostname(), software_facts()
    return {
        "number": number,
        "host": host,
        "finds_first": _addresses(first_host) != [],
        "own_addresses": _addresses(host),
        "chooses_interface": bool(environ.get("GLOO_SOCKET_IFNAME")),
        "versions": {name: versions[name] for name in COMPARED_VERSIONS},
        "refusal": refusal,
        "sees_home": True,
    }


def git_facts(path: Path) -> dict[str, Any] | None:
    """Return commit and dirtiness of the repository that holds `path`; None without a repository, a commit or git.

    Untracked files do not make it dirty.
    """
    commit = _git(path, "rev-parse", "--verify", "HEAD")
    if commit is None:
        return None
    changes = _git(path, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "is_dirty": None if changes is None else bool(changes)}


def scheduler_facts(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the scheduler's job that this process belongs to, from the environment; kind `local` if there is none."""
    # A node that joins a running job was allocated by another job; the run's job is the joined one.
    job_id = environ.get(JOINED_JOB_VARIABLE) or environ.get("SLURM_JOB_ID")
    return {
        "kind": "slurm" if job_id else "local",
        "job_id": job_id or None,
        "partition": environ.get("SLURM_JOB_PARTITION"),
        "node_list": environ.get("SLURM_JOB_NODELIST"),
        "submitted_at": _seconds(environ.get("SLURM_JOB_SUBMIT_TIME")),
        "started_at": _seconds(environ.get("SLURM_JOB_START_TIME")),
    }


def _addresses(host: str) -> list[str]:
    try:
        answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(str(address[0]).partition("%")[0] for *_, address in answers))


def _cpu_name() -> str | None:
    text = _text_of(Path("/proc/cpuinfo")) or ""
    match = re.search(r"^(?:model name|Model|cpu model)\s*:\s*(.+)$", text, re.MULTILINE)
    if match:
        return match[1].strip()
    return platform.processor() or platform.machine() or None


def _text_of(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git(path: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", os.fspath(path), *arguments],
            capture_output=True,
            text=True,
            timeout=GIT_TIMEOUT_S,
            check=False,
            # Do not take git's index lock: a commit of the user at the same time would fail.
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _seconds(value: str | None) -> float | None:
    try:
        return float(value) if value else None
    except ValueError:
        return None
