"""`elasticqa profile`: where the time of a profiler trace went."""

import argparse
import json
import sys
from collections.abc import Sequence
from typing import NoReturn

from elasticqa.trace.scan import TraceError
from elasticqa.trace.summary import summarize
from elasticqa.trace.text import as_text


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one line."""
        self.exit(2, f"{self.prog}: {message}; --help tells the options\n")


def main(argv: Sequence[str]) -> int:
    """Print the summary of a trace and return 0, or 2 where the file is no trace."""
    parser = _Parser(
        prog="elasticqa profile",
        description="Summarize a trace of torch.profiler: compute, communication, idle, operators and kernels.",
        allow_abbrev=False,
    )
    parser.add_argument("trace", metavar="TRACE", help="a Kineto trace, .json or .json.gz")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON, as the record keeps it")
    arguments = parser.parse_args(argv)
    try:
        summary = summarize(arguments.trace)
    except TraceError as error:
        sys.stderr.write(f"elasticqa profile: {error}\n")
        return 2
    text = json.dumps(summary.to_dict(), indent=2) + "\n" if arguments.json else as_text(summary)
    sys.stdout.write(text)
    return 0
