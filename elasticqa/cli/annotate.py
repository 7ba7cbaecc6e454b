"""`elasticqa annotate`: what a user adds to a run, as lines beside its journal."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from db.command_line import Parser
from db.engine import DatabaseError
from db.ingest.update import bring_up_to_date
from elasticqa.errors import ConfigError
from elasticqa.run.annotations import annotate
from elasticqa.run.home import find_run, runs_dir


def main(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Annotate a run and return 0, or 2 where it cannot be done."""
    parser = Parser(prog="elasticqa annotate", description="Name, tag or note a run.")
    parser.add_argument("run", metavar="RUN", help="id of the run, or its beginning")
    parser.add_argument("--name", help="what the pages call it; '' takes the name away")
    parser.add_argument("--tag", action="append", default=[], help="add a tag; may be given several times")
    parser.add_argument("--untag", action="append", default=[], help="take a tag away")
    parser.add_argument("--note", help="free text in place of the note so far; '' takes it away")
    options = parser.parse_args(argv)
    try:
        annotations = _asked(options)
        runs = runs_dir(environ)
        run_id = find_run(options.run, runs)
        _write(runs / run_id, annotations)
        bring_up_to_date(environ)
    except (ConfigError, DatabaseError) as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return 2
    sys.stdout.write(f"{run_id}: {', '.join(f'{kind} {value!r}' for kind, value in annotations)}\n")
    return 0


def _write(directory: Path, annotations: list[tuple[str, str]]) -> None:
    try:
        annotate(directory, annotations)
    except OSError as error:
        raise ConfigError(
            f"{directory} cannot be written ({error.strerror}): annotations lie beside the run's journal; free its "
            "file system, or ask whose run it is"
        ) from error


def _asked(options: argparse.Namespace) -> list[tuple[str, str]]:
    asked = [(kind, value) for kind in ("name", "note") if (value := getattr(options, kind)) is not None]
    asked += [(kind, value) for kind in ("tag", "untag") for value in getattr(options, kind)]
    if not asked:
        raise ConfigError("nothing to annotate: give --name, --tag, --untag or --note")
    for kind, value in asked:
        if kind in ("tag", "untag") and not value.strip():
            raise ConfigError(f"--{kind} {value!r} is blank: a tag has at least one letter")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"--{kind} {value!r} is not UTF-8: type it in a UTF-8 terminal") from None
    return asked
