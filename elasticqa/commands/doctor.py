"""`elasticqa doctor`: can this machine train, record and show runs, and if not, what is to be done."""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import NoReturn

from elasticqa.doctor.finding import Finding, as_text, tally
from elasticqa.doctor.run import CHECKS, run_check


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one line."""
        self.exit(2, f"{self.prog}: {message}; --help tells the options\n")


def main(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Print what each check found and return 0, or 1 where one failed."""
    parser = _Parser(
        prog="elasticqa doctor",
        description="Check this machine: software, GPUs, home directory, database, network, hub, Slurm.",
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print all findings as one JSON object")
    arguments = parser.parse_args(argv)
    findings: list[Finding] = []
    for check in CHECKS:
        found = run_check(check, environ)
        findings += found
        if not arguments.json:
            sys.stdout.write("".join(f"{as_text(finding)}\n" for finding in found))
            sys.stdout.flush()
    if arguments.json:
        sys.stdout.write(json.dumps({"findings": [asdict(finding) for finding in findings]}, indent=2) + "\n")
    else:
        sys.stdout.write(f"\n{tally(findings)}\n")
    return int(any(finding.status == "fail" for finding in findings))
