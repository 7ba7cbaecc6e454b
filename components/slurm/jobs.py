"""State of jobs: from squeue, else from sacct, else from the files that the jobs wrote."""

import getpass
import json
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from torchx.specs import AppState
from torchx.specs.finder import ComponentValidationException

STATES = {
    "PENDING": AppState.PENDING,
    "CONFIGURING": AppState.PENDING,
    "REQUEUED": AppState.PENDING,
    "REQUEUE_FED": AppState.PENDING,
    "REQUEUE_HOLD": AppState.PENDING,
    "RESV_DEL_HOLD": AppState.PENDING,
    "SPECIAL_EXIT": AppState.PENDING,
    "SUSPENDED": AppState.PENDING,
    "STOPPED": AppState.PENDING,
    "RUNNING": AppState.RUNNING,
    "RESIZING": AppState.RUNNING,
    "SIGNALING": AppState.RUNNING,
    "STAGE_OUT": AppState.RUNNING,
    "COMPLETING": AppState.RUNNING,
    "COMPLETED": AppState.SUCCEEDED,
    "CANCELLED": AppState.CANCELLED,
    "BOOT_FAIL": AppState.FAILED,
    "DEADLINE": AppState.FAILED,
    "FAILED": AppState.FAILED,
    "LAUNCH_FAILED": AppState.FAILED,
    "NODE_FAIL": AppState.FAILED,
    "OUT_OF_MEMORY": AppState.FAILED,
    "PREEMPTED": AppState.FAILED,
    "RECONFIG_FAIL": AppState.FAILED,
    "REVOKED": AppState.FAILED,
    "TIMEOUT": AppState.FAILED,
}
"""Slurm's state -> TorchX's. A state that is not listed (of a newer Slurm) does not count as an end."""

_UNKNOWN_JOB = "Invalid job id specified"
_QUEUE = [
    "squeue",
    "--noheader",
    "--states=all",
    "--Format=JobID:|,State:|,NumNodes:|,ReasonList:|,RestartCnt:|,Name:|",
]


class SlurmError(ComponentValidationException):  # type: ignore[misc] # torchx has no types
    """A job cannot be submitted or queried.

    TorchX's command line prints this exception type as one message, and others as a traceback.
    """


@dataclass(frozen=True)
class Job:
    """The known facts of a job."""

    job_id: str
    state: str
    """Slurm's name of the state."""
    num_nodes: int
    name: str
    detail: str = ""
    """The reason why it waits, or the nodes it runs on."""
    num_restarts: int = 0

    @property
    def app_state(self) -> AppState:
        """The state as TorchX's enum."""
        return STATES.get(self.state, AppState.UNKNOWN)


def run(command: list[str], **options: object) -> "subprocess.CompletedProcess[str]":
    """Return a completed Slurm command; its exit status is not checked.

    Raises:
        SlurmError: the command is not on PATH.
    """
    if shutil.which(command[0]) is None:
        raise SlurmError(
            f"{command[0]} is not on PATH: Slurm's commands are needed; run this on a login node of the cluster, or "
            "train on this machine with -s local_cwd"
        )
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload,no-any-return]


def find(job_id: str, logs: Path) -> Job | None:
    """Return a job, or None if it is unknown.

    Raises:
        SlurmError: the controller does not answer.
    """
    if not job_id.isdigit():
        return None
    done = run([*_QUEUE, f"--jobs={job_id}"])
    if done.returncode != 0 and _UNKNOWN_JOB not in done.stderr:
        raise SlurmError(f"job {job_id} cannot be queried: squeue says {done.stderr.strip()!r}")
    known = chain(_from_squeue(done.stdout), _from_accounting([f"--jobs={job_id}"]))
    return next(known, None) or _from_files(logs / f"{job_id}.json")


def find_all(logs: Path) -> list[Job]:
    """Return this user's jobs sorted by number: those that Slurm knows, and those submitted with this home directory.

    Raises:
        SlurmError: the controller does not answer.
    """
    user = getpass.getuser()
    done = run([*_QUEUE, f"--user={user}"])
    if done.returncode != 0:
        raise SlurmError(f"the jobs cannot be listed: squeue says {done.stderr.strip()!r}")
    jobs = {job.job_id: job for path in logs.glob("*.json") if (job := _from_files(path))}
    jobs |= {job.job_id: job for job in _from_accounting([f"--user={user}", "--starttime=1970-01-02"])}
    # Use squeue's state last, which overrides sacct's: sacct lists a job that was just requeued as failed.
    jobs |= {job.job_id: job for job in _from_squeue(done.stdout)}
    return [jobs[job_id] for job_id in sorted(jobs, key=int)]


def num_logs(logs: Path, job_id: str) -> int:
    """Return how many nodes have written a log for a job, over all requeues."""
    return len([path for path in logs.glob(f"{job_id}-*.log") if path.stem.removeprefix(f"{job_id}-").isdigit()])


def _from_squeue(text: str) -> Iterable[Job]:
    for line in text.splitlines():
        job_id, state, num_nodes, detail, restarts, name = line.rstrip("|").split("|", 5)
        if job_id.isdigit():
            # MIN-MAX for a pending job.
            yield Job(job_id, state, int(num_nodes.split("-")[-1]), name, detail, int(restarts))


def _from_accounting(which: list[str]) -> Iterable[Job]:
    """Return the jobs in accounting; none if the cluster has no accounting."""
    if shutil.which("sacct") is None:
        return
    done = run(["sacct", "--allocations", "--parsable2", "--noheader", "--format=JobID,State,NNodes,JobName", *which])
    if done.returncode != 0:
        return
    for line in done.stdout.splitlines():
        job_id, state, num_nodes, name = line.split("|", 3)
        if job_id.isdigit() and state:
            # Keep the first word: sacct reports states such as "CANCELLED by 1000".
            yield Job(job_id, state.split()[0], int(num_nodes or 0), name)


def _from_files(path: Path) -> Job | None:
    """Return a job that Slurm no longer knows, from the files of its submission and its exit status."""
    try:
        submitted = json.loads(path.read_text(encoding="utf-8"))
        name = str(submitted["name"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    num_nodes = num_logs(path.parent, path.stem)
    try:
        status = path.with_suffix(".exit").read_text(encoding="utf-8").strip()
    except OSError:
        state, detail = "CANCELLED", "ended without an exit status, and Slurm no longer knows it"
    else:
        state, detail = "COMPLETED" if status == "0" else "FAILED", f"exit status {status}"
    return Job(path.stem, state, num_nodes, name, detail)
