"""`elasticqa doctor`: check whether this machine can train, record and show runs, and say how to fix what fails."""

import argparse
import configparser
import importlib
import json
import queue
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NoReturn

from elasticqa.cli.doctor.finding import Finding, fail
from elasticqa.config.environment import ENVIRONMENT
from elasticqa.errors import one_line


@dataclass(frozen=True)
class Check:
    """The name of a module with a function ``check(environ)``; `run_check` imports it, which may fail or hang."""

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
JOB_OPTIONS = ("partition", "account", "qos", "constraint", "gres", "reservation")


class _Parser(argparse.ArgumentParser):
    """Like `db.command_line.Parser`, which cannot be imported if another package `db` hides ours."""

    def error(self, message: str) -> NoReturn:
        """Print the error as one line and exit with status 2."""
        self.exit(2, f"{self.prog}: {' '.join(message.split())}; --help lists the options\n")


def main(argv: Sequence[str], environ: Mapping[str, str] = ENVIRONMENT) -> int:
    """Print the findings of all checks; return 0, or 1 if one failed."""
    parser = _Parser(
        prog="elasticqa doctor",
        description="Check this machine: packages, GPUs, home directory, database, limits, network, hub, Slurm. With "
        "--slurm, check two nodes of the cluster with a short job instead.",
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print all findings as one JSON object")
    parser.add_argument("--slurm", action="store_true", help="run a check job on two nodes of the cluster instead")
    job = parser.add_argument_group("with --slurm (defaults: [slurm] of .torchxconfig)")
    for name in JOB_OPTIONS:
        job.add_argument(f"--{name}", metavar="NAME", help=f"as in sbatch: {name}")
    job.add_argument("--gpu", type=int, default=0, metavar="N", help="GPUs that each node must have")
    job.add_argument(
        "--wait", type=float, default=300.0, metavar="S", help="longest wait in the queue, in seconds (%(default)g)"
    )
    arguments = parser.parse_args(argv)
    batches = _check_job(arguments, environ) if arguments.slurm else (run_check(check, environ) for check in CHECKS)
    findings: list[Finding] = []
    for batch in batches:
        findings += batch
        if not arguments.json:
            sys.stdout.write("".join(f"{as_text(finding)}\n" for finding in batch))
            sys.stdout.flush()
    if arguments.json:
        sys.stdout.write(json.dumps({"findings": [asdict(finding) for finding in findings]}, indent=2) + "\n")
    else:
        counts = Counter(finding.status for finding in findings)
        sys.stdout.write(f"\n{counts['ok']} ok, {counts['warn']} warn, {counts['fail']} fail\n")
    return int(any(finding.status == "fail" for finding in findings))


def as_text(finding: Finding) -> str:
    """Return the finding as text for a terminal, without a final line break."""
    line = f"{finding.status:<5} {finding.check:<12} {finding.found}"
    return line if finding.advice is None else f"{line}\n{'':<18} -> {finding.advice}"


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


def _check_job(arguments: argparse.Namespace, environ: Mapping[str, str]) -> Iterator[list[Finding]]:
    config = configparser.ConfigParser(interpolation=None)
    try:
        config.read(".torchxconfig", encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        found = f".torchxconfig cannot be read ({one_line(error)})"
        yield [fail("slurm", found, "correct it, or run the command in another directory")]
        return
    flags = []
    for name in JOB_OPTIONS:
        value = getattr(arguments, name) or config.get("slurm", name, fallback="")
        if value:
            flags.append(f"--{name}={value}")
    if arguments.gpu and not any(flag.startswith("--gres=") for flag in flags):
        flags.append(f"--gpus-per-node={arguments.gpu}")
    # Import it only here: it imports the package `db`, and the other checks must run even if `db` cannot be imported.
    slurm_job = importlib.import_module("elasticqa.cli.doctor.slurm_job")
    yield slurm_job.run_check_job(
        flags, arguments.gpu, arguments.wait, environ, lambda text: sys.stderr.write(f"elasticqa doctor: {text}\n")
    )
