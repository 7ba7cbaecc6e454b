"""The environment that a training process, or the agent of some, begins in, and the threads that follow from it."""

import os
from collections.abc import Mapping

import psutil
import torch

from elasticqa.config.environment import JOB_HANDLE_VARIABLE

_THREADS = "OMP_NUM_THREADS"


def own_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the allocation that somebody's shell happens to be in.

    A job of this machine that is started inside `salloc`, or with what such a shell left behind, is a local one.
    """
    is_elsewhere = not environ.get(JOB_HANDLE_VARIABLE, "slurm://").startswith("slurm://")
    return {name: value for name, value in environ.items() if not (is_elsewhere and name.startswith("SLURM_"))}


def complete(environ: dict[str, str], num_processes: int) -> None:
    """Add what torch reads and nobody has said.

    Args:
        environ: of processes that are about to begin.
        num_processes: that share the CPUs of this node.
    """
    # A returning agent must find the store where the new round says it is: torch 2.13 does not tell it the new place.
    environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    environ.setdefault(_THREADS, str(max(1, len(os.sched_getaffinity(0)) // num_processes)))


def enter(environ: Mapping[str, str]) -> None:
    """Make this the environment of this process, with the threads of one that begins in it."""
    # torch heeds the second more than the first.
    has_threads = _THREADS in os.environ or "MKL_NUM_THREADS" in os.environ
    for name in os.environ.keys() - environ.keys():
        del os.environ[name]
    os.environ.update(environ)
    if has_threads or _THREADS not in environ:
        return
    # torch found nothing when it was imported and counted by itself, depending on its build: the cores that this
    # process may use, or all CPUs of the machine. What it would have read is cut to the cores of the machine (MKL).
    num_cpus = int(environ[_THREADS])
    num_threads = min(num_cpus, psutil.cpu_count(logical=False) or num_cpus)
    if torch.get_num_threads() != num_threads:
        torch.set_num_threads(num_threads)
