"""`elasticqa annotate`: name, tag or comment a run."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from db.command_line import Parser
from db.engine import DatabaseError
from db.ingest.update import update_database
from elasticqa.config.environment import ENVIRONMENT
from elasticqa.errors import ConfigError
from elasticqa.run.annotations import annotate
from elasticqa.run.home import find_run, runs_dir


def main(argv: Sequence[str], environ: Mapping[str, str] = ENVIRONMENT) -> int:
    """Annotate a run; return 0, or 2 for a wrong request."""
    parser = Parser(
        prog="elasticqa annotate", description="Name, tag or comment a run; the dashboard and `elasticqa runs` show it."
    )
    parser.add_argument("run", metavar="RUN", help="run id or unique prefix")
    parser.add_argument("--name", help="display name; '' removes it")
    parser.add_argument("--tag", action="append", default=[], help="add a tag (repeatable)")
    parser.add_argument("--untag", action="append", default=[], help="remove a tag (repeatable)")
    parser.add_argument("--note", help="free text that replaces the note; '' removes it")
    options = parser.parse_args(argv)
    try:
        annotations = _annotations(options)
        directory = find_run(options.run, runs_dir(environ))
        _write(directory, annotations)
        update_database(environ)
    except (ConfigError, DatabaseError) as error:
        return parser.refuse(error)
    sys.stdout.write(f"{directory.name}: {', '.join(f'{kind} {value!r}' for kind, value in annotations)}\n")
    return 0


def _write(directory: Path, annotations: list[tuple[str, str]]) -> None:
    try:
        annotate(directory, annotations)
    except OSError as error:
        raise ConfigError(
            f"{directory} cannot be written ({error.strerror}): annotations are stored in the run directory; free "
            "space on its file system, or ask the owner of the run"
        ) from error


def _annotations(options: argparse.Namespace) -> list[tuple[str, str]]:
    pairs = [(kind, value) for kind in ("name", "note") if (value := getattr(options, kind)) is not None]
    pairs += [(kind, value) for kind in ("tag", "untag") for value in getattr(options, kind)]
    if not pairs:
        raise ConfigError("nothing to annotate: give --name, --tag, --untag or --note")
    for kind, value in pairs:
        if kind in ("tag", "untag") and not value.strip():
            raise ConfigError(f"--{kind} {value!r} is blank: a tag has at least one letter")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"--{kind} {value!r} is not UTF-8: type it in a UTF-8 terminal") from None
    return pairs
