"""`elasticqa import`: results of other programs, and bundles of `elasticqa export`."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from db.bundle import BundleError, import_bundle
from db.command_line import Parser
from db.engine import DatabaseError
from db.importers import ForeignFormatError, ForeignRun, Found, TraceFacts, found_in, read_foreign, trace_run, write_run
from db.reports.cells import text
from elasticqa.cli.reading import complain, refresh
from elasticqa.errors import ConfigError
from elasticqa.profiling.trace.scan import TraceError
from elasticqa.profiling.trace.summary import TraceSummary, summarize
from elasticqa.run.home import runs_dir


def main(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Import every path; return 0, or 2 if one of them could not be taken (the others are)."""
    parser = Parser(
        prog="elasticqa import",
        description="Add results of the Hugging Face Trainer, Lightning, TensorBoard or Kineto, or bundles.",
    )
    parser.add_argument("paths", metavar="PATH", nargs="+", type=Path, help="a file, or a folder with results")
    options = parser.parse_args(argv)
    status = 0
    try:
        for result in _results(options.paths, runs_dir(environ)):
            if isinstance(result, str):
                sys.stdout.write(result + "\n")
            else:
                status = complain(parser.prog, result)
        refresh(environ)
    except (ConfigError, DatabaseError) as error:
        return complain(parser.prog, error)
    return status


def _results(paths: Sequence[Path], runs: Path) -> Iterator[str | Exception]:
    """Yield what was done with each result; a damaged one keeps none of the others from being taken."""
    for path in paths:
        try:
            found = found_in(path)
        except ForeignFormatError as error:
            yield error
            continue
        for item in found:
            try:
                yield _import(item, runs)
            except (ForeignFormatError, BundleError, TraceError) as error:
                yield error


def _import(found: Found, runs: Path) -> str:
    """Return what was done, in one line."""
    if found.kind == "bundle":
        restored = import_bundle(found.path, runs)
        run_id, is_new = restored.run_id, restored.is_new
    else:
        run = _trace(found.path) if found.kind == "kineto" else read_foreign(found)
        imported = write_run(run, runs)
        run_id, is_new = imported.run_id, imported.is_new
    return f"{text(found.path)}: run {run_id} {'imported' if is_new else 'is here already'}"


def _trace(path: Path) -> ForeignRun:
    summary = summarize(path)
    return trace_run(path, summary.to_dict(), _facts(summary))


def _facts(summary: TraceSummary) -> TraceFacts:
    """The name of the device is known where all devices of the trace have one name."""
    names = {device.name for device in summary.devices or ()}
    return TraceFacts(
        rank=summary.rank,
        world_size=summary.world_size,
        device_name=names.pop() if len(names) == 1 else None,
    )
