"""`elasticqa profile`: summarize a profiler trace."""

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
    """Print the summary of a trace; return 0, or 2 if the file is not a trace."""
    parser = Parser(
        prog="elasticqa profile",
        description="Summarize a torch.profiler trace: compute, communication and idle time, operators and kernels.",
    )
    parser.add_argument(
        "trace", metavar="TRACE", help="Kineto trace (.json or .json.gz), or the id of a run with a trace"
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON, as in the database")
    arguments = parser.parse_args(argv)
    try:
        summary = summarize(_trace_of(arguments.trace))
    except (TraceError, ConfigError) as error:
        return parser.refuse(error)
    text = json.dumps(summary.to_dict(), indent=2) + "\n" if arguments.json else as_text(summary)
    sys.stdout.write(text)
    return 0


def _trace_of(name: str) -> Path:
    """Return the trace file that ``name`` names: a path, or a run's id for its newest trace.

    Raises:
        ConfigError: the run has no trace.
    """
    path = Path(name)
    if path.exists() or path.suffix in (".json", ".gz") or "/" in name:
        return path
    run = find_run(name, runs_dir())
    traces = sorted((run / "traces").glob("*.json.gz"))
    if not traces:
        raise ConfigError(f"run {run.name} has no trace: train with --profile to write one")
    return traces[-1]
