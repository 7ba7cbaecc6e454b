"""`elasticqa runs`: the recorded runs as a table."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import get_args

from db.command_line import Parser, count_up_to
from db.engine import DatabaseError
from db.queries import RunFilters, RunOrder, RunRow, list_runs
from db.queries.runs import SortColumn
from db.reports.cells import number, significant, text
from db.reports.plain import to_plain
from db.reports.tables import Column, table_of
from elasticqa.cli.record import updated_session
from elasticqa.config.environment import ENVIRONMENT
from elasticqa.errors import ConfigError
from elasticqa.run.home import home

_FILTERS = ("status", "provenance", "recipe", "model", "parallel", "device_name", "text")
_COLUMNS: tuple[Column[RunRow], ...] = (
    Column("run", lambda run: text(run.run_id)),
    Column("name", lambda run: text(run.name)),
    Column("status", lambda run: text(run.status)),
    Column("provenance", lambda run: text(run.provenance)),
    Column("recipe", lambda run: text(run.recipe)),
    Column("strategy", lambda run: text(run.parallel)),
    Column("world", lambda run: number(run.world_size, 0), is_number=True),
    Column("em %", lambda run: number(run.em), is_number=True),
    Column("f1 %", lambda run: number(run.f1), is_number=True),
    Column("loss", lambda run: number(run.final_loss, 4), is_number=True),
    Column("wall clock s", lambda run: number(run.wall_clock_s, 1), is_number=True),
    Column("features/s", lambda run: significant(run.samples_per_s), is_number=True),
)


def main(argv: Sequence[str], environ: Mapping[str, str] = ENVIRONMENT) -> int:
    """Print the runs that match; return 0, or 2 if the database cannot be used."""
    parser = _parser()
    options = parser.parse_args(argv)
    filters = RunFilters(**{name: getattr(options, name) for name in _FILTERS})
    order = RunOrder(options.sort, "asc" if options.ascending else "desc")
    try:
        home(environ)
        with updated_session(environ) as session:
            page = list_runs(session, time.time(), filters, order, limit=options.limit)
    except (ConfigError, DatabaseError) as error:
        return parser.refuse(error)
    if options.json:
        sys.stdout.write(json.dumps([asdict(row) for row in page.rows], indent=2) + "\n")
    else:
        note = f"{len(page.rows):,} of {page.num_matching:,} runs"
        sys.stdout.write(to_plain(table_of("Runs", _COLUMNS, page.rows, [note])))
    return 0


_CHOICES = {
    "status": ("running", "finished", "failed", "preempted", "lost"),
    "provenance": ("measured", "imported", "reported"),
    "parallel": ("none", "ddp", "fsdp"),
}
_WORDS = {"parallel": "strategy", "device_name": "device"}


def _parser() -> Parser:
    parser = Parser(prog="elasticqa runs", description="List the recorded runs.")
    for name in _FILTERS[:-1]:
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, choices=_CHOICES.get(name), help=f"only runs with this {_WORDS.get(name, name)}")
    parser.add_argument("--text", help="only runs with this text in their id, name or a tag")
    parser.add_argument(
        "--sort", choices=get_args(SortColumn), default="created_at", help="column to sort by (default: created_at)"
    )
    parser.add_argument("--ascending", action="store_true", help="smallest first (default: largest first)")
    parser.add_argument(
        "--limit", type=count_up_to(1_000_000), default=50, metavar="N", help="at most N runs (default: 50)"
    )
    parser.add_argument("--json", action="store_true", help="print every column as JSON")
    return parser
