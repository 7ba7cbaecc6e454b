"""`elasticqa doctor`: check whether this machine can train, record and show runs, and say how to fix what fails."""

import argparse
import configparser
import importlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import NoReturn

from elasticqa.cli.doctor.checks import CHECKS, run_check
from elasticqa.cli.doctor.finding import Finding, as_text, fail, tally
from elasticqa.config.environment import ENVIRONMENT
from elasticqa.errors import one_line

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
        sys.stdout.write(f"\n{tally(findings)}\n")
    return int(any(finding.status == "fail" for finding in findings))


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
    # Imported late: it needs the package `db`, which the other checks must do without.
    slurm_job = importlib.import_module("elasticqa.cli.doctor.slurm_job")
    yield slurm_job.run_check_job(
        flags, arguments.gpu, arguments.wait, environ, lambda text: sys.stderr.write(f"elasticqa doctor: {text}\n")
    )
