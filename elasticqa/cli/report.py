"""`elasticqa report`: runs and speedups as Markdown, LaTeX or one HTML page."""

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from db.command_line import Parser
from db.engine import DatabaseError
from db.queries import RunNotFoundError
from db.reports import FORMATS, gather, to_html
from elasticqa.cli.record import updated_session
from elasticqa.config.environment import ENVIRONMENT
from elasticqa.errors import ConfigError
from elasticqa.run.home import find_run, runs_dir


def main(argv: Sequence[str], environ: Mapping[str, str] = ENVIRONMENT) -> int:
    """Write a report; return 0, or 2 for a wrong request."""
    parser = Parser(
        prog="elasticqa report",
        description="Write a report of runs and of their speedups: medians and confidence intervals of repeated runs.",
    )
    parser.add_argument(
        "runs", metavar="RUN", nargs="*", help="run ids or unique prefixes (default: the newest 200 runs)"
    )
    parser.add_argument(
        "--format", choices=(*FORMATS, "html"), default="markdown", help="output format (default: markdown)"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="output file (default: standard output)")
    options = parser.parse_args(argv)
    try:
        run_ids = [find_run(run, runs_dir(environ)).name for run in options.runs]
        with updated_session(environ) as session:
            report = gather(session, time.time(), run_ids)
        if options.format == "html":
            document = to_html(report)
        else:
            document = FORMATS[options.format]("Training runs", report.made_at, report.tables)
        if options.output is None:
            sys.stdout.write(document)
        else:
            _write(options.output, document)
    except (ConfigError, DatabaseError, RunNotFoundError) as error:
        return parser.refuse(error)
    return 0


def _write(path: Path, document: str) -> None:
    try:
        path.write_text(document, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written ({error.strerror}): give another file with -o") from error
