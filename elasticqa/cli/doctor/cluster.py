"""A job of two nodes that checks a Slurm cluster: asked for, waited for, and read, from the login node."""

import json
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from elasticqa.cli.doctor.finding import Finding, fail, ok
from elasticqa.cli.doctor.node_findings import findings_of
from elasticqa.cli.doctor.slurm import SlurmError, is_configured
from elasticqa.cli.doctor.slurm import output as ask
from elasticqa.run.home import HomeError, home

MARKER = "elasticqa-doctor: "
"""Begins the lines of the nodes that are meant for this side."""
NUM_NODES = 2
LONGEST_RUN_S = 240.0
"""Of the check itself, once it runs: imports from a slow file system, and three minutes of things that hang."""
POLL_INTERVAL_S = 1.0
_HOPELESS = ("Account", "BadConstraints", "Invalid", "Partition", "QOSNotAllowed", "ReqNodeNotAvail")
"""Beginnings of reasons to wait that do not go away in minutes."""
_NO_REASONS = (" queued and waiting ", " been allocated ", ": task ")
"""Parts of srun's lines that do not tell why it failed."""
_IS_NONE = "None"


def check_cluster(
    flags: Sequence[str], num_gpus: int, wait_s: float, environ: Mapping[str, str], say: Callable[[str], object]
) -> list[Finding]:
    """Run the check job and return what it found.

    Args:
        flags: of srun: partition, account and the like.
        num_gpus: that each node must see.
        wait_s: how long the job may wait in the queue.
        environ: of this process.
        say: told about the job's way through the queue.
    """
    missing = [name for name in ("srun", "squeue", "scancel") if shutil.which(name, path=environ.get("PATH")) is None]
    if missing or not is_configured(environ):
        found = f"{', '.join(missing)} not on PATH" if missing else "no cluster is configured: SLURM_CONF is not set"
        return [fail("slurm", found, "run this on a login node of the cluster, or load the module of Slurm")]
    mark = f"doctor-{secrets.token_hex(8)}"
    try:
        directory = home(environ) / "slurm"
        directory.mkdir(exist_ok=True)
        (directory / mark).write_text("", encoding="utf-8")
    except (HomeError, OSError) as error:
        return [fail("home", str(error), "set ELASTICQA_HOME to a directory that all nodes can write")]
    try:
        job = _CheckJob(mark, flags, environ)
        refusal = job.wait(wait_s, say)
        if refusal is not None:
            return [refusal]
        return [
            ok("slurm", f"job {job.job_id} ran on {NUM_NODES} nodes"),
            *findings_of(job.messages, directory, mark, num_gpus),
        ]
    finally:
        for path in directory.glob(f"{mark}*"):
            path.unlink(missing_ok=True)


class _CheckJob:
    """The job, started at once; `srun` stays here and passes on what the nodes print."""

    def __init__(self, name: str, flags: Sequence[str], environ: Mapping[str, str]) -> None:
        self.name = name
        self.flags = flags
        # Those of an allocation around this shell would be taken for the job's own.
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
            *(sys.executable, "-m", "elasticqa.cli.doctor.node", "--mark", name),
        ]
        self.job_id = ""
        self.messages: list[dict[str, Any]] = []
        self._complaints: list[str] = []
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=self.environ,
        )
        self._readers = [
            threading.Thread(target=self._read_messages, daemon=True),
            threading.Thread(target=self._read_complaints, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read_messages(self) -> None:
        for line in self._process.stdout or ():
            _, marker, text = line.partition(MARKER)
            if marker:
                self.messages.append(json.loads(text))

    def _read_complaints(self) -> None:
        self._complaints += [line.strip() for line in self._process.stderr or () if line.strip()]

    def wait(self, wait_s: float, say: Callable[[str], object]) -> Finding | None:
        """Return why the job did not run to its end, or None if it did; it is over either way."""
        deadline = time.monotonic() + wait_s
        seen, has_started = "", False
        try:
            while self._process.poll() is None:
                state, reason = self._ask()
                if state and f"{state} ({reason})" != seen:
                    seen = f"{state} ({reason})"
                    say(
                        f"job {self.job_id} on {NUM_NODES} nodes: {state}{'' if reason == _IS_NONE else f' ({reason})'}"
                    )
                if state == "RUNNING" and not has_started:
                    has_started, deadline = True, time.monotonic() + LONGEST_RUN_S
                if state == "PENDING" and reason.startswith(_HOPELESS):
                    return self._hopeless(reason)
                if time.monotonic() > deadline:
                    return self._late(seen, wait_s, has_started=has_started)
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(POLL_INTERVAL_S)
        finally:
            self._end()
        return None if self._process.returncode == 0 else self._failed()

    def _ask(self) -> tuple[str, str]:
        """Return the job's state and why it waits; empty where the queue does not have it."""
        try:
            line = ask(["squeue", "--noheader", f"--name={self.name}", "--format=%i|%T|%r"], self.environ)
        except SlurmError:
            return "", ""  # srun goes on, and says so when the controller stays away
        if not line:
            return "", ""
        self.job_id, state, reason = line.splitlines()[0].split("|")
        return state, reason

    def _hopeless(self, reason: str) -> Finding:
        advice = "name a partition, account or qos that has two nodes for you: sinfo, and the options of this command"
        return fail("slurm", f"job {self.job_id} would not start ({reason}), and is cancelled: {self._asked()}", advice)

    def _late(self, seen: str, wait_s: float, *, has_started: bool) -> Finding:
        if has_started:
            advice = "a file system or the network between the nodes hangs: try a program of two lines there with srun"
            return fail("slurm", f"job {self.job_id} ran and did not end within {LONGEST_RUN_S:g} s", advice)
        advice = "wait longer with --wait SECONDS, or name a partition with free nodes: sinfo"
        told = f"job {self.job_id}" if seen else "the job"
        waits = seen or "it was not in the queue yet"
        return fail("slurm", f"{told} did not start within {wait_s:g} s, and is cancelled: {waits}", advice)

    def _failed(self) -> Finding:
        of_srun = [line for line in self._complaints if line.startswith("srun: ")]
        refusals = [line for line in of_srun if not any(word in line for word in _NO_REASONS)]
        # The last one, since a traceback ends in what went wrong; torch warns of much that is well.
        of_nodes = [line for line in self._complaints if line not in of_srun and not line.startswith("[W")][-1:]
        said = "; ".join(line.removeprefix("srun: ").removeprefix("error: ") for line in [*of_nodes, *refusals[:2]])
        status = self._process.returncode
        advice = "if it is the request, see the options of this command; if it is a node, its environment differs"
        return fail("slurm", f"srun ends with status {status}: {said or 'without a word'}; {self._asked()}", advice)

    def _asked(self) -> str:
        return f"asked for {NUM_NODES} nodes{''.join(f' {flag}' for flag in self.flags)}"

    def _end(self) -> None:
        if self._process.poll() is None:
            subprocess.run(["scancel", f"--name={self.name}"], env=self.environ, capture_output=True, check=False)
            self._process.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join()
        # Its pipes have been read to the end.
        self._process.communicate()
