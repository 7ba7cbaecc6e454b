"""`elasticqa doctor`: can this machine train, record and show runs, and if not, what is to be done."""

import argparse
import configparser
import importlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import NoReturn

from elasticqa.cli.doctor.finding import Finding, as_text, fail, first_line, tally
from elasticqa.cli.doctor.run import CHECKS, run_check

JOB_OPTIONS = ("partition", "account", "qos", "constraint", "gres", "reservation")


class _Parser(argparse.ArgumentParser):
    """As `db.command_line` has it; but a foreign package `db` in the way is one of the things to find."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one line."""
        self.exit(2, f"{self.prog}: {' '.join(message.split())}; --help tells the options\n")


def main(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Print what each check found and return 0, or 1 where one failed."""
    parser = _Parser(
        prog="elasticqa doctor",
        description="Check this machine: software, GPUs, home directory, database, network, hub, Slurm; or, with "
        "--slurm, two nodes of the cluster by a short job.",
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print all findings as one JSON object")
    parser.add_argument("--slurm", action="store_true", help="run a check job on two nodes of the cluster instead")
    job = parser.add_argument_group("with --slurm; what is left out comes from [slurm] of .torchxconfig")
    for name in JOB_OPTIONS:
        job.add_argument(f"--{name}", metavar="NAME", help=f"as in sbatch: {name}")
    job.add_argument("--gpu", type=int, default=0, metavar="N", help="GPUs that each node must have")
    job.add_argument("--wait", type=float, default=300.0, metavar="S", help="longest wait in the queue (%(default)g s)")
    arguments = parser.parse_args(argv)
    batches = _cluster(arguments, environ) if arguments.slurm else (run_check(check, environ) for check in CHECKS)
    findings: list[Finding] = []
    for found in batches:
        findings += found
        if not arguments.json:
            sys.stdout.write("".join(f"{as_text(finding)}\n" for finding in found))
            sys.stdout.flush()
    if arguments.json:
        sys.stdout.write(json.dumps({"findings": [asdict(finding) for finding in findings]}, indent=2) + "\n")
    else:
        sys.stdout.write(f"\n{tally(findings)}\n")
    return int(any(finding.status == "fail" for finding in findings))


def _cluster(arguments: argparse.Namespace, environ: Mapping[str, str]) -> Iterator[list[Finding]]:
    file = configparser.ConfigParser(interpolation=None)
    try:
        file.read(".torchxconfig", encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        yield [
            fail("slurm", f".torchxconfig cannot be read ({first_line(error)})", "correct it, or leave this directory")
        ]
        return
    flags = []
    for name in JOB_OPTIONS:
        value = getattr(arguments, name) or file.get("slurm", name, fallback="")
        if value:
            flags.append(f"--{name}={value}")
    if arguments.gpu and not any(flag.startswith("--gres=") for flag in flags):
        flags.append(f"--gpus-per-node={arguments.gpu}")
    # It needs the record's package, which may be what is broken where the other checks are asked for.
    cluster = importlib.import_module("elasticqa.cli.doctor.cluster")
    yield cluster.check_cluster(
        flags, arguments.gpu, arguments.wait, environ, lambda text: sys.stderr.write(f"elasticqa doctor: {text}\n")
    )
