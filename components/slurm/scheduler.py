"""The TorchX scheduler `slurm`."""

import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import platformdirs
from torchx.schedulers.api import DescribeAppResponse, ListAppResponse, Scheduler, Stream
from torchx.specs import AppDef, AppDryRunInfo, ReplicaStatus, Role, RoleStatus, is_terminal, runopts

from components.slurm import jobs
from components.slurm.jobs import SlurmError
from components.slurm.script import OPTIONS, JobRequest, job_request

POLL_INTERVAL_S = 1.0

_PERMANENT_REASONS = frozenset(
    {
        "AccountNotAllowed",
        "BadConstraints",
        "InvalidAccount",
        "InvalidQOS",
        "PartitionConfig",
        "PartitionNodeLimit",
        "PartitionTimeLimit",
        "QOSNotAllowed",
    }
)
"""Reasons for which a pending job never starts; many clusters accept such jobs."""


def logs_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of the logs of all jobs, in the home directory."""
    home = environ.get("ELASTICQA_HOME") or platformdirs.user_data_dir("elasticqa", appauthor=False)
    return Path(home).expanduser().absolute() / "slurm"


class SlurmScheduler(Scheduler[Mapping[str, object]]):  # type: ignore[misc] # torchx has no types
    """Submits an application with one role as one job, and reports its state and logs.

    Works with and without Slurm's accounting.
    """

    def __init__(self, session_name: str, logs: Path) -> None:
        super().__init__("slurm", session_name)
        self.logs = logs

    def _run_opts(self) -> runopts:
        options = runopts()
        for name, text in OPTIONS.items():
            options.add(name, type_=str, default="USR1@120" if name == "signal" else None, help=text)
        return options

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, object]) -> AppDryRunInfo[JobRequest]:
        return AppDryRunInfo(job_request(app, cfg, self.logs), str)

    def schedule(self, dryrun_info: AppDryRunInfo[JobRequest]) -> str:
        """Submit the job and return its number.

        Raises:
            SlurmError: sbatch is not on PATH, or refuses the job.
        """
        request: JobRequest = dryrun_info.request
        try:
            self.logs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SlurmError(
                f"{self.logs} cannot be created ({error.strerror}): logs are written there; set ELASTICQA_HOME to a "
                "directory that all nodes can write"
            ) from error
        done = jobs.run(request.command, input=request.script, env=submission_environment(os.environ))
        if done.returncode != 0:
            reason = " ".join(re.sub("^sbatch: (error: )?", "", line) for line in done.stderr.splitlines())
            raise SlurmError(
                f"sbatch refuses the job: {reason}; the options are those of `torchx runopts slurm` in .torchxconfig "
                f"or -cfg, and the component's --cpu, --gpu and --memMB; the command was {' '.join(request.command)}"
            )
        # ID, or ID;CLUSTER where clusters are federated.
        job_id = done.stdout.strip().split(";")[0]
        text = json.dumps({"name": request.name, "submitted_at": time.time(), "command": request.command})
        path = self.logs / f"{job_id}.json"
        path.write_text(text + "\n", encoding="utf-8")
        try:
            self._refuse_if_it_never_starts(job_id)
        except SlurmError:
            path.unlink()
            raise
        return job_id

    def _refuse_if_it_never_starts(self, job_id: str) -> None:
        try:
            job = jobs.find(job_id, self.logs)
        except SlurmError:
            # Ignore an error: the job is in the queue even if the controller does not answer.
            return
        reason = "" if job is None else job.detail.strip("()")
        if reason in _PERMANENT_REASONS:
            self._cancel_existing(job_id)
            raise SlurmError(
                f"job {job_id} would wait forever ({reason}) and is cancelled: the partition, account or quality of "
                "service does not allow these nodes or this time; sinfo and `scontrol show partition` show the limits"
            )

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return the state of a job, or None if it is unknown."""
        job = jobs.find(app_id, self.logs)
        if job is None:
            return None
        # A job that has lost or gained nodes has more logs than nodes.
        num_nodes = max(job.num_nodes, jobs.num_logs(self.logs, app_id))
        replicas = [
            ReplicaStatus(id=number, role=job.name, state=job.app_state, hostname="") for number in range(num_nodes)
        ]
        return DescribeAppResponse(
            app_id=app_id,
            state=job.app_state,
            num_restarts=job.num_restarts,
            msg=f"{job.state} {job.detail}".strip(),
            roles=[Role(name=job.name, image="", num_replicas=num_nodes)],
            roles_statuses=[RoleStatus(job.name, replicas)],
        )

    def list(self) -> list[ListAppResponse]:
        """Return this user's jobs, sorted by number."""
        return [ListAppResponse(app_id=job.job_id, state=job.app_state) for job in jobs.find_all(self.logs)]

    def _cancel_existing(self, app_id: str) -> None:
        done = jobs.run(["scancel", app_id])
        if done.returncode != 0:
            raise SlurmError(f"job {app_id} cannot be cancelled: {done.stderr.strip()}")

    def log_iter(  # noqa: PLR0917 # the signature is TorchX's
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool = False,
        streams: Stream | None = None,
    ) -> Iterable[str]:
        """Return the lines that node ``k`` of the job has written, over all requeues.

        Raises:
            SlurmError: a single stream or a time range is requested: a node's log has both streams and no times.
        """
        if streams not in (None, Stream.COMBINED) or since or until:
            raise SlurmError("a node's log has both streams and no times: leave out --streams, since and until")
        lines = self._lines(app_id, self.logs / f"{app_id}-{k}.log", should_tail)
        return filter(re.compile(regex).search, lines) if regex else lines

    def _lines(self, app_id: str, path: Path, should_tail: bool) -> Iterator[str]:
        is_over = not should_tail
        while not path.exists():
            if is_over:
                yield f"job {app_id} has written no {path}; see {path.parent}/{app_id}-batch.log\n"
                return
            is_over = self._is_over(app_id)
            time.sleep(POLL_INTERVAL_S)
        with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
            line = ""
            while True:
                line += file.readline()
                if line.endswith("\n") or (line and is_over):
                    yield line
                    line = ""
                elif is_over:
                    return
                else:
                    # Query the state before the next read, so that the job's last lines are read.
                    is_over = self._is_over(app_id)
                    time.sleep(0 if is_over else POLL_INTERVAL_S)

    def _is_over(self, app_id: str) -> bool:
        job = jobs.find(app_id, self.logs)
        return job is None or bool(is_terminal(job.app_state))


def submission_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for sbatch, which passes it to the job.

    Slurm's variables are removed: inside `salloc`, the job would mistake them for its own.
    """
    return {name: value for name, value in environ.items() if not name.startswith("SLURM_") or name == "SLURM_CONF"}


def create_scheduler(session_name: str, **_: Any) -> SlurmScheduler:
    """Return the scheduler; called by TorchX."""
    return SlurmScheduler(session_name, logs_dir())
