"""The list of checks; each runs for a limited time and cannot stop the others."""

import importlib
import queue
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from elasticqa.cli.doctor.finding import Finding, fail
from elasticqa.errors import one_line


@dataclass(frozen=True)
class Check:
    """A module with a function ``check(environ)``; named, since importing it may fail or hang."""

    name: str
    module: str
    timeout_s: float
    advice: str
    """What to do if the check does not end in time."""


CHECKS = (
    Check("packages", "elasticqa.cli.doctor.software", 60, "Python's disk, or a directory on PYTHONPATH, is very slow"),
    Check("torch", "elasticqa.cli.doctor.devices", 150, "torch or the GPU driver hangs: try nvidia-smi"),
    Check("home", "elasticqa.cli.doctor.home", 30, "the file system hangs: set ELASTICQA_HOME to another one"),
    Check("database", "elasticqa.cli.doctor.database", 30, "the database hangs: check ELASTICQA_DB_URL"),
    Check("limits", "elasticqa.cli.doctor.limits", 10, "the system is very slow: check its load"),
    Check("host", "elasticqa.cli.doctor.network", 30, "the name server does not answer: add this host to /etc/hosts"),
    Check("hub", "elasticqa.cli.doctor.hub", 90, "libraries load very slowly from this disk, or the hub hangs"),
    Check("slurm", "elasticqa.cli.doctor.slurm", 60, "the Slurm controller hangs: ask the administrators"),
)


def run_check(check: Check, environ: Mapping[str, str]) -> list[Finding]:
    """Return the findings of a check; a check that breaks or hangs is a failure.

    It runs in a thread, since calls to a file system or a name server have no timeout.
    """
    answers: queue.SimpleQueue[list[Finding]] = queue.SimpleQueue()
    threading.Thread(target=lambda: answers.put(_findings(check, environ)), daemon=True).start()
    try:
        return answers.get(timeout=check.timeout_s)
    except queue.Empty:
        return [fail(check.name, f"no answer within {check.timeout_s:g} s", check.advice)]


def _findings(check: Check, environ: Mapping[str, str]) -> list[Finding]:
    try:
        found: list[Finding] = importlib.import_module(check.module).check(environ)
    # A broken package may raise anything, even SystemExit; the other checks must still run.
    except (Exception, SystemExit) as error:
        advice = "see `packages` and `names`: the installation looks broken; install elasticqa in a new environment"
        return [fail(check.name, f"the check could not run ({one_line(error)})", advice)]
    return found
