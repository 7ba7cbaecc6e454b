"""Runs checks, each for a bounded time and without being able to take the others down."""

import importlib
import queue
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from elasticqa.cli.doctor.finding import Finding, fail, first_line


@dataclass(frozen=True)
class Check:
    """A function of the environment that returns findings, named and not imported."""

    name: str
    module: str
    timeout_s: float
    if_late: str
    """What to do when it does not answer in time."""


CHECKS = (
    Check("python", "elasticqa.cli.doctor.software", 60, "the disk that Python is installed on is very slow"),
    Check("names", "elasticqa.cli.doctor.names", 30, "a directory on PYTHONPATH does not answer: take it away"),
    Check("torch", "elasticqa.cli.doctor.devices", 150, "torch or the GPU driver hangs: does nvidia-smi answer?"),
    Check("home", "elasticqa.cli.doctor.disk", 30, "the file system hangs: set ELASTICQA_HOME to another one"),
    Check("database", "elasticqa.cli.doctor.database", 30, "the database hangs: check ELASTICQA_DB_URL"),
    Check("limits", "elasticqa.cli.doctor.limits", 10, "the system answers very slowly: see what loads it"),
    Check("clock", "elasticqa.cli.doctor.clock", 10, "the file system hangs: set ELASTICQA_HOME to another one"),
    Check("host", "elasticqa.cli.doctor.host", 30, "the name server does not answer: add this host to /etc/hosts"),
    Check("ports", "elasticqa.cli.doctor.ports", 10, "connections inside this machine hang: see its firewall"),
    Check("hub", "elasticqa.cli.doctor.sources", 90, "libraries load very slowly from this disk, or the hub hangs"),
    Check("slurm", "elasticqa.cli.doctor.slurm", 60, "the Slurm controller does not answer: ask who runs the cluster"),
)


def run_check(check: Check, environ: Mapping[str, str]) -> list[Finding]:
    """Return what ``check(environ)`` of its module found; a check that breaks or hangs is a finding itself.

    In a thread, since no call bounds the time that a file system or a name server takes.
    """
    answers: queue.SimpleQueue[list[Finding]] = queue.SimpleQueue()
    threading.Thread(target=lambda: answers.put(_findings(check, environ)), daemon=True).start()
    try:
        return answers.get(timeout=check.timeout_s)
    except queue.Empty:
        return [fail(check.name, f"no answer within {check.timeout_s:g} s", check.if_late)]


def _findings(check: Check, environ: Mapping[str, str]) -> list[Finding]:
    try:
        found: list[Finding] = importlib.import_module(check.module).check(environ)
    # Whatever a broken installation throws, the other checks must still be seen; foreign modules may even exit.
    except (Exception, SystemExit) as error:
        advice = "see `python` and `names`: the installation looks broken; install elasticqa in a new environment"
        return [fail(check.name, f"the check could not run ({first_line(error)})", advice)]
    return found
