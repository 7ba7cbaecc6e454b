"""Environment variables of elasticqa and its launcher; `db.storage.home` reads the home and the database's URL."""

import os
from collections.abc import Mapping
from pathlib import Path

from elasticqa.errors import ConfigError, shown

ENVIRONMENT: Mapping[str, str] = os.environ
"""The environment of this process (not a copy)."""

RUN_ID_VARIABLE = "ELASTICQA_RUN_ID"
"""Id of the run to train: set when the run is submitted, and kept over restarts and requeues."""
MIN_NODES_VARIABLE = "ELASTICQA_MIN_NODES"
NPROC_PER_NODE_VARIABLE = "ELASTICQA_NPROC_PER_NODE"
PEER_TIMEOUT_VARIABLE = "ELASTICQA_PEER_TIMEOUT_S"
AGENT_DIRECTORY_VARIABLE = "ELASTICQA_AGENT_DIRECTORY"
AGENT_PID_VARIABLE = "ELASTICQA_AGENT_PID"
JOB_HANDLE_VARIABLE = "TORCHX_JOB_ID"
"""Such as ``slurm://torchx/7``."""
JOINED_JOB_VARIABLE = "TORCHX_JOINED_JOB"
"""Id of the running elastic job that this node joins; the node itself was allocated by another, one-node job."""
FIRST_HOST_VARIABLE = "TORCHX_RANK0_HOST"

DEFAULT_PEER_TIMEOUT_S = 20.0
"""Longer than the delay of the health check's thread on a busy or swapping machine."""
_SHORTEST_TIMEOUT_S, _LONGEST_TIMEOUT_S = 5, 86_400


def peer_timeout_s(environ: Mapping[str, str] = ENVIRONMENT) -> float:
    """Return the seconds without a heartbeat after which a rank counts as failed.

    Raises:
        ConfigError: the variable is not a whole number in the range.
    """
    text = environ.get(PEER_TIMEOUT_VARIABLE)
    if text is None:
        return DEFAULT_PEER_TIMEOUT_S
    is_number = text.isascii() and text.isdigit() and len(text) < 10
    if not (is_number and _SHORTEST_TIMEOUT_S <= int(text) <= _LONGEST_TIMEOUT_S):
        raise ConfigError(
            f"{PEER_TIMEOUT_VARIABLE}={shown(text)} is not a whole number of seconds from {_SHORTEST_TIMEOUT_S} to "
            f"{_LONGEST_TIMEOUT_S}: unset it for {DEFAULT_PEER_TIMEOUT_S:g} s"
        )
    return float(text)


def set_agent(directory: Path, pid: int) -> None:
    """Name the elastic agent of this node to the workers that it will start."""
    os.environ[AGENT_DIRECTORY_VARIABLE] = os.fspath(directory)
    os.environ[AGENT_PID_VARIABLE] = str(pid)


def agent_directory(environ: Mapping[str, str] = ENVIRONMENT) -> Path | None:
    """Return the directory of the elastic agent that started this worker; None without one."""
    name = environ.get(AGENT_DIRECTORY_VARIABLE)
    return Path(name) if name and Path(name).is_dir() else None


def agent_pid(environ: Mapping[str, str] = ENVIRONMENT) -> int | None:
    """Return the process id of the elastic agent that started this worker; None without one."""
    pid = environ.get(AGENT_PID_VARIABLE)
    return None if pid is None else int(pid)


def is_slurm_job(environ: Mapping[str, str] = ENVIRONMENT) -> bool:
    """Whether this process runs inside a job of Slurm."""
    return "SLURM_JOB_ID" in environ


def without_torchelastic(environ: Mapping[str, str] = ENVIRONMENT) -> dict[str, str]:
    """Return the environment for a subprocess of a worker, which is not a worker itself."""
    return {name: value for name, value in environ.items() if not name.startswith("TORCHELASTIC_")}
