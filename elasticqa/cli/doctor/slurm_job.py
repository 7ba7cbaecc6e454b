"""`elasticqa doctor --slurm` on the login node: submit a job of two nodes, wait for it and read its messages."""

import json
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO

from elasticqa.cli.doctor.finding import Finding, fail, ok
from elasticqa.cli.doctor.slurm import SlurmError, is_configured, output
from elasticqa.cli.doctor.slurm_findings import findings_of
from elasticqa.errors import ConfigError
from elasticqa.run.home import home

MARKER = "elasticqa-doctor: "
"""Prefix of the nodes' messages in the output of srun."""
NUM_NODES = 2
MAX_RUN_S = 240.0
"""Time limit of the running job: enough for slow imports and timeouts of three minutes."""
POLL_INTERVAL_S = 1.0
_PERMANENT_REASONS = ("Account", "BadConstraints", "Invalid", "Partition", "QOSNotAllowed", "ReqNodeNotAvail")
"""Prefixes of Slurm's reasons for which a pending job will not start within minutes."""
_NOT_ERRORS = (" queued and waiting ", " been allocated ", ": task ")
"""Parts of srun's lines that do not explain a failure."""


def run_check_job(
    flags: Sequence[str], num_gpus: int, wait_s: float, environ: Mapping[str, str], log: Callable[[str], object]
) -> list[Finding]:
    """Run the check job with options for srun and return its findings; it waits in the queue for at most ``wait_s``.

    ``log`` is called with each change of the job's state in the queue.
    """
    missing = [name for name in ("srun", "squeue", "scancel") if shutil.which(name, path=environ.get("PATH")) is None]
    if missing or not is_configured(environ):
        found = f"{', '.join(missing)} not on PATH" if missing else "no cluster is configured: SLURM_CONF is not set"
        return [fail("slurm", found, "run this on a login node of the cluster, or load Slurm's environment module")]
    name = f"doctor-{secrets.token_hex(8)}"
    try:
        directory = home(environ) / "slurm"
        directory.mkdir(exist_ok=True)
        (directory / name).write_text("", encoding="utf-8")
    except (ConfigError, OSError) as error:
        return [fail("home", str(error), "set ELASTICQA_HOME to a directory that all nodes can write")]
    try:
        # Use files: a full pipe would block srun.
        with tempfile.TemporaryFile() as messages, tempfile.TemporaryFile() as errors:
            job = _CheckJob(name, flags, environ, messages, errors)
            failure = job.wait(wait_s, log)
            if failure is not None:
                return [failure]
            lines = (line.partition(MARKER) for line in _lines(messages))
            reports = [json.loads(text) for _, marker, text in lines if marker]
        done = ok("slurm", f"job {job.job_id} ran on {NUM_NODES} nodes")
        return [done, *findings_of(reports, directory, name, num_gpus)]
    finally:
        for path in directory.glob(f"{name}*"):
            path.unlink(missing_ok=True)


class _CheckJob:
    """The check job; the constructor starts it with `srun`, which passes on the output of the nodes."""

    def __init__(
        self, name: str, flags: Sequence[str], environ: Mapping[str, str], messages: IO[bytes], errors: IO[bytes]
    ) -> None:
        self.name = name
        self.request = f"requested {NUM_NODES} nodes{''.join(f' {flag}' for flag in flags)}"
        # Remove Slurm's variables: inside `salloc`, srun would start a step of that allocation instead of a new job.
        self.environ = {
            key: value for key, value in environ.items() if not key.startswith("SLURM_") or key == "SLURM_CONF"
        }
        command = [
            "srun",
            f"--nodes={NUM_NODES}",
            f"--ntasks={NUM_NODES}",
            "--ntasks-per-node=1",
            "--kill-on-bad-exit=0",
            "--time=10",
            *flags,
            f"--job-name={name}",
            *(sys.executable, "-m", "elasticqa.cli.doctor.slurm_node", "--mark", name),
        ]
        self.job_id = ""
        self._errors = errors
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=messages, stderr=errors, env=self.environ
        )

    def wait(self, wait_s: float, log: Callable[[str], object]) -> Finding | None:
        """Wait for the end of the job, cancel it at a timeout, and return why it failed, or None."""
        deadline = time.monotonic() + wait_s
        last_state, has_started = "", False
        try:
            while self._process.poll() is None:
                state, reason = self._queue_state()
                if state and f"{state} ({reason})" != last_state:
                    last_state = f"{state} ({reason})"
                    log(f"job {self.job_id} on {NUM_NODES} nodes: {state if reason == 'None' else last_state}")
                if state == "RUNNING" and not has_started:
                    has_started, deadline = True, time.monotonic() + MAX_RUN_S
                if state == "PENDING" and reason.startswith(_PERMANENT_REASONS):
                    advice = "name a partition, account or qos that gives you two nodes: check sinfo"
                    found = f"job {self.job_id} cannot start ({reason}) and is cancelled: {self.request}"
                    return fail("slurm", found, advice)
                if time.monotonic() > deadline:
                    return self._timed_out(last_state, wait_s, has_started=has_started)
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(POLL_INTERVAL_S)
        finally:
            if self._process.poll() is None:
                subprocess.run(["scancel", f"--name={self.name}"], env=self.environ, capture_output=True, check=False)
                self._process.kill()
            self._process.wait()
        return None if self._process.returncode == 0 else self._failed()

    def _queue_state(self) -> tuple[str, str]:
        """Return the job's state and the reason why it waits; empty if it is not in the queue."""
        try:
            line = output(["squeue", "--noheader", f"--name={self.name}", "--format=%i|%T|%r"], self.environ)
        except SlurmError:
            return "", ""  # srun fails if the controller stays unreachable
        if not line:
            return "", ""
        self.job_id, state, reason = line.splitlines()[0].split("|")
        return state, reason

    def _timed_out(self, last_state: str, wait_s: float, *, has_started: bool) -> Finding:
        if has_started:
            advice = "a file system or the network between the nodes hangs: test them with srun -N 2 hostname"
            return fail("slurm", f"job {self.job_id} ran and did not end within {MAX_RUN_S:g} s", advice)
        advice = "wait longer with --wait SECONDS, or name a partition with free nodes: check sinfo"
        job = f"job {self.job_id}" if last_state else "the job"
        state = last_state or "it was not in the queue yet"
        return fail("slurm", f"{job} did not start within {wait_s:g} s and is cancelled: {state}", advice)

    def _failed(self) -> Finding:
        errors = _lines(self._errors)
        of_srun = [line for line in errors if line.startswith("srun: ")]
        refusals = [line for line in of_srun if not any(part in line for part in _NOT_ERRORS)]
        # Take the last line, which has the error of a traceback; skip torch's warnings.
        of_nodes = [line for line in errors if line not in of_srun and not line.startswith("[W")][-1:]
        reason = "; ".join(line.removeprefix("srun: ").removeprefix("error: ") for line in [*of_nodes, *refusals[:2]])
        status = self._process.returncode
        advice = "for a refused request, see the options of this command; for an error of a node, check its environment"
        return fail("slurm", f"srun exits with {status}: {reason or 'no error message'}; {self.request}", advice)


def _lines(file: IO[bytes]) -> list[str]:
    file.seek(0)
    return [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
