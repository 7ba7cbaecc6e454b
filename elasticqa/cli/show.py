"""`elasticqa show`: one run in detail."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from db.command_line import Parser
from db.engine import DatabaseError
from db.queries import (
    AttemptRow,
    EvaluationRow,
    RunDetail,
    RunNotFoundError,
    attempts_of,
    checkpoints_of,
    evaluations_of,
    events_of,
    get_run,
    time_shares,
)
from db.reports.cells import UNKNOWN, moment, number, significant, text
from db.reports.plain import facts, to_plain
from db.reports.tables import Column, Table, devices
from elasticqa.cli.record import updated_session
from elasticqa.config.environment import ENVIRONMENT
from elasticqa.errors import ConfigError
from elasticqa.run.home import find_run, runs_dir

_NUM_EVENTS = 10


def main(argv: Sequence[str], environ: Mapping[str, str] = ENVIRONMENT) -> int:
    """Print a run; return 0, or 2 if there is no such run."""
    parser = Parser(prog="elasticqa show", description="Show one run in detail.")
    parser.add_argument("run", metavar="RUN", help="run id or unique prefix")
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")
    options = parser.parse_args(argv)
    try:
        directory = find_run(options.run, runs_dir(environ))
        with updated_session(environ) as session:
            shown = _json(session, directory.name) if options.json else _text(session, directory)
    except (ConfigError, DatabaseError, RunNotFoundError) as error:
        return parser.refuse(error)
    sys.stdout.write(shown)
    return 0


def _json(session: Session, run_id: str) -> str:
    now = time.time()
    run = get_run(session, run_id, now)
    attempts = attempts_of(session, run_id, now)
    whole: dict[str, Any] = {
        **asdict(run),
        "attempts": [asdict(row) for row in attempts],
        "evaluations": [asdict(row) for row in evaluations_of(session, run_id)],
        "checkpoints": [asdict(row) for row in checkpoints_of(session, run_id)],
        "events": [asdict(row) for row in events_of(session, run_id)],
        "time_shares": [asdict(row) for row in time_shares(session, run_id, attempts)],
    }
    return json.dumps(whole, indent=2) + "\n"


def _text(session: Session, directory: Path) -> str:
    run_id, now = directory.name, time.time()
    run = get_run(session, run_id, now)
    attempts = attempts_of(session, run_id, now)
    parts = [f"{text(run.name or run.run_id)}\n", facts(_facts(run, directory))]
    shares = [(share.what, f"{number(share.seconds, 1)} s") for share in time_shares(session, run_id, attempts)]
    evaluations = evaluations_of(session, run_id)
    events = [
        (moment(event.t), f"{text(event.name)}: {text(event.message)}")
        for event in events_of(session, run_id, _NUM_EVENTS)
    ]
    config = [(text(name), text(value)) for name, value in sorted(run.config.items()) if value is not None]
    parts += _section("where the time went", facts(shares) if shares else "")
    parts += _section("attempts", to_plain(_attempts_table(attempts)))
    parts += _section("evaluations", to_plain(_evaluations_table(evaluations)) if evaluations else "")
    parts += _section("newest events", facts(events) if events else "")
    parts += _section("config", facts(config) if config else "")
    return "".join(parts)


def _section(title: str, body: str) -> list[str]:
    return [f"\n{title}\n{body}"] if body else []


def _facts(run: RunDetail, directory: Path) -> list[tuple[str, str]]:
    steps = number(run.step, 0) if run.num_steps is None else f"{number(run.step, 0)} of {number(run.num_steps, 0)}"
    known = [
        ("run", text(run.run_id)),
        ("status", text(run.status)),
        ("provenance", text(run.provenance)),
        ("tags", ", ".join(text(tag) for tag in run.tags) or UNKNOWN),
        ("note", text(run.note)),
        ("recipe", text(run.recipe)),
        ("model", text(run.model)),
        ("data", text(run.dataset)),
        ("strategy", text(run.parallel)),
        ("precision", text(run.precision)),
        ("devices", devices(run.world_size, run.num_nodes, run.device_name)),
        ("started (UTC)", moment(run.started_at)),
        ("steps", steps),
        ("EM (%)", number(run.em)),
        ("F1 (%)", number(run.f1)),
        ("final loss", number(run.final_loss, 4)),
        ("wall clock (s)", number(run.wall_clock_s, 1)),
        ("training (s)", number(run.train_time_s, 1)),
        ("features/s", significant(run.samples_per_s)),
        ("tokens/s", significant(run.tokens_per_s)),
        ("peak memory (GiB)", number(None if run.peak_memory_bytes is None else run.peak_memory_bytes / 2**30)),
        ("directory", str(directory) if directory.is_dir() else UNKNOWN),
    ]
    return [(name, value) for name, value in known if value != UNKNOWN]


def _attempts_table(attempts: Sequence[AttemptRow]) -> Table:
    columns = (
        Column("attempt", is_number=True),
        Column("status"),
        Column("started (UTC)"),
        Column("world", is_number=True),
        Column("steps"),
        Column("wall clock s", is_number=True),
        Column("features/s", is_number=True),
        Column("reason"),
    )
    rows = tuple(
        (
            str(row.attempt),
            text(row.status),
            moment(row.started_at),
            number(row.world_size, 0),
            f"{number(row.start_step, 0)} to {number(row.end_step, 0)}",
            number(row.wall_clock_s, 1),
            significant(row.samples_per_s),
            text(row.reason),
        )
        for row in attempts
    )
    return Table("attempts", columns, rows)


def _evaluations_table(evaluations: Sequence[EvaluationRow]) -> Table:
    titles = ("step", "split", "em %", "f1 %", "loss", "questions", "time s")
    columns = tuple(Column(title, is_number=title != "split") for title in titles)
    rows = tuple(
        (
            number(row.step, 0),
            text(row.split),
            number(row.em),
            number(row.f1),
            number(row.loss, 4),
            number(row.num_examples, 0),
            number(row.eval_time_s, 1),
        )
        for row in evaluations
    )
    return Table("evaluations", columns, rows)
