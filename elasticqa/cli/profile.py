"""`elasticqa profile`: where the time of a profiler trace went."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from db.command_line import Parser
from elasticqa.errors import ConfigError
from elasticqa.profiling.trace.scan import TraceError
from elasticqa.profiling.trace.summary import summarize
from elasticqa.profiling.trace.text import as_text
from elasticqa.run.home import find_run, runs_dir


def main(argv: Sequence[str]) -> int:
    """Print the summary of a trace and return 0, or 2 where the file is no trace."""
    parser = Parser(
        prog="elasticqa profile",
        description="Summarize a trace of torch.profiler: compute, communication, idle, operators and kernels.",
    )
    parser.add_argument("trace", metavar="TRACE", help="a Kineto trace, .json or .json.gz, or a run that has one")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON, as the record keeps it")
    arguments = parser.parse_args(argv)
    try:
        summary = summarize(_trace_of(arguments.trace))
    except (TraceError, ConfigError) as error:
        sys.stderr.write(f"elasticqa profile: {error}\n")
        return 2
    text = json.dumps(summary.to_dict(), indent=2) + "\n" if arguments.json else as_text(summary)
    sys.stdout.write(text)
    return 0


def _trace_of(name: str) -> Path:
    """Return the file of that name, or the newest trace of the run of that id.

    Raises:
        ConfigError: the run has no trace.
    """
    path = Path(name)
    if path.exists() or path.suffix in (".json", ".gz") or "/" in name:
        return path
    run = runs_dir() / find_run(name, runs_dir())
    traces = sorted((run / "traces").glob("*.json.gz"))
    if not traces:
        raise ConfigError(f"run {run.name} has no trace: train with --profile to make one")
    return traces[-1]
