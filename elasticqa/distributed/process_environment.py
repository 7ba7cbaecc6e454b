"""The environment variables and the number of threads of a training process or an elastic agent."""

import os
from collections.abc import Mapping

import psutil
import torch

from elasticqa.config.environment import JOB_HANDLE_VARIABLE

_THREADS_VARIABLE = "OMP_NUM_THREADS"


def without_outer_allocation(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment, without Slurm's variables if the job was not started by Slurm.

    A local job may be started from a shell inside `salloc`, or with variables that such a shell left behind.
    """
    is_local = not environ.get(JOB_HANDLE_VARIABLE, "slurm://").startswith("slurm://")
    return {name: value for name, value in environ.items() if not (is_local and name.startswith("SLURM_"))}


def set_torch_defaults(environ: dict[str, str], num_processes: int) -> None:
    """Set defaults of torch's variables in the environment of ``num_processes`` processes that share this node."""
    # Workers of a new rendezvous round must connect to its store; with a shared store, torch 2.13 keeps the old
    # address.
    environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    environ.setdefault(_THREADS_VARIABLE, str(max(1, len(os.sched_getaffinity(0)) // num_processes)))


def replace_environment(environ: Mapping[str, str]) -> None:
    """Make ``environ`` the environment of this process, and set the number of threads as if it had started with it."""
    # torch reads both variables; MKL_NUM_THREADS has priority.
    has_threads = _THREADS_VARIABLE in os.environ or "MKL_NUM_THREADS" in os.environ
    for name in os.environ.keys() - environ.keys():
        del os.environ[name]
    os.environ.update(environ)
    if has_threads or _THREADS_VARIABLE not in environ:
        return
    # Without these variables, torch sets the number of threads on import: to the CPUs of this process or of the
    # machine, depending on its build. MKL limits the variable's value to the physical cores of the machine.
    num_cpus = int(environ[_THREADS_VARIABLE])
    num_threads = min(num_cpus, psutil.cpu_count(logical=False) or num_cpus)
    if torch.get_num_threads() != num_threads:
        torch.set_num_threads(num_threads)
