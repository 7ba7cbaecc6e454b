"""`elasticqa export`: pack a run into one file."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from db.bundle.export import export_run
from db.bundle.manifest import BundleError
from db.command_line import Parser
from db.reports.cells import text
from elasticqa.config.environment import ENVIRONMENT
from elasticqa.errors import ConfigError
from elasticqa.run.home import find_run, runs_dir


def main(argv: Sequence[str], environ: Mapping[str, str] = ENVIRONMENT) -> int:
    """Write a bundle; return 0, or 2 if it cannot be written."""
    parser = Parser(
        prog="elasticqa export",
        description="Pack a run into one file, which `elasticqa import` unpacks on any machine.",
    )
    parser.add_argument("run", metavar="RUN", help="run id or unique prefix")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.tar.gz", help="file to write (default: RUN.tar.gz)")
    checkpoints = parser.add_mutually_exclusive_group()
    checkpoints.add_argument("--with-checkpoints", action="store_true", help="include checkpoints and the model")
    checkpoints.add_argument(
        "--without-checkpoints", dest="with_checkpoints", action="store_false", help="leave them out (default)"
    )
    options = parser.parse_args(argv)
    try:
        directory = find_run(options.run, runs_dir(environ))
        target = options.output or Path(f"{directory.name}.tar.gz")
        manifest = export_run(directory, target, with_checkpoints=options.with_checkpoints)
    except (ConfigError, BundleError) as error:
        return parser.refuse(error)
    size = target.stat().st_size
    sys.stdout.write(f"{text(target)}: run {directory.name}, {len(manifest.entries)} files, {size:,} bytes\n")
    return 0
