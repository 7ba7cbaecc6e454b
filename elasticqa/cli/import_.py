"""`elasticqa import`: add results of other tools, or a bundle from `elasticqa export`."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from db.bundle.manifest import BundleError
from db.bundle.restore import import_bundle
from db.command_line import Parser
from db.engine import DatabaseError
from db.importers.fields import ImportFormatError
from db.importers.kineto import trace_run
from db.importers.results import FoundResults, find_results, read_results
from db.importers.run import ImportedRun, write_run
from db.reports.cells import text
from elasticqa.cli.record import update
from elasticqa.config.environment import ENVIRONMENT
from elasticqa.errors import ConfigError
from elasticqa.profiling.trace.scan import TraceError
from elasticqa.profiling.trace.summary import summarize
from elasticqa.run.home import runs_dir


def main(argv: Sequence[str], environ: Mapping[str, str] = ENVIRONMENT) -> int:
    """Import every path; return 0, or 2 if one of them cannot be imported (the others are)."""
    parser = Parser(
        prog="elasticqa import",
        description="Import results of the Hugging Face Trainer, Lightning, TensorBoard or torch.profiler, or bundles "
        "from `elasticqa export`.",
    )
    parser.add_argument("paths", metavar="PATH", nargs="+", type=Path, help="a file, or a directory with results")
    options = parser.parse_args(argv)
    status = 0
    try:
        for result in _results(options.paths, runs_dir(environ)):
            if isinstance(result, str):
                sys.stdout.write(result + "\n")
            else:
                status = parser.refuse(result)
        update(environ)
    except (ConfigError, DatabaseError) as error:
        return parser.refuse(error)
    return status


def _results(paths: Sequence[Path], runs: Path) -> Iterator[str | Exception]:
    """Yield a line, or the error, for each result; a damaged result does not stop the others."""
    for path in paths:
        try:
            found = find_results(path)
        except ImportFormatError as error:
            yield error
            continue
        for item in found:
            try:
                yield _import(item, runs)
            except (ImportFormatError, BundleError, TraceError) as error:
                yield error


def _import(found: FoundResults, runs: Path) -> str:
    """Import one result and return a line about it."""
    if found.kind == "bundle":
        added = import_bundle(found.path, runs)
    else:
        added = write_run(_read_trace(found.path) if found.kind == "kineto" else read_results(found), runs)
    return f"{text(found.path)}: run {added.run_id} {'imported' if added.is_new else 'exists already'}"


def _read_trace(path: Path) -> ImportedRun:
    summary = summarize(path)
    names = {device.name for device in summary.devices or ()}
    # None if its devices have different names.
    device_name = names.pop() if len(names) == 1 else None
    return trace_run(path, summary.to_dict(), rank=summary.rank, world_size=summary.world_size, device_name=device_name)
