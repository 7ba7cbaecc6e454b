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
from db.reports.tables import Column, devices, table_of
from elasticqa.cli.record import updated_session
from elasticqa.config.environment import ENVIRONMENT
from elasticqa.errors import ConfigError
from elasticqa.run.home import find_run, runs_dir

_NUM_EVENTS = 10
_ATTEMPT_COLUMNS: tuple[Column[AttemptRow], ...] = (
    Column("attempt", lambda row: str(row.attempt), is_number=True),
    Column("status", lambda row: text(row.status)),
    Column("started (UTC)", lambda row: moment(row.started_at)),
    Column("world", lambda row: number(row.world_size, 0), is_number=True),
    Column("steps", lambda row: f"{number(row.start_step, 0)} to {number(row.end_step, 0)}"),
    Column("wall clock s", lambda row: number(row.wall_clock_s, 1), is_number=True),
    Column("features/s", lambda row: significant(row.samples_per_s), is_number=True),
    Column("reason", lambda row: text(row.reason)),
)
_EVALUATION_COLUMNS: tuple[Column[EvaluationRow], ...] = (
    Column("step", lambda row: number(row.step, 0), is_number=True),
    Column("split", lambda row: text(row.split)),
    Column("em %", lambda row: number(row.em), is_number=True),
    Column("f1 %", lambda row: number(row.f1), is_number=True),
    Column("loss", lambda row: number(row.loss, 4), is_number=True),
    Column("questions", lambda row: number(row.num_examples, 0), is_number=True),
    Column("time s", lambda row: number(row.eval_time_s, 1), is_number=True),
)


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
    parts += _section("wall clock by kind of work", facts(shares))
    parts += _section("attempts", to_plain(table_of("attempts", _ATTEMPT_COLUMNS, attempts)))
    evaluations_table = to_plain(table_of("evaluations", _EVALUATION_COLUMNS, evaluations))
    parts += _section("evaluations", evaluations_table if evaluations else "")
    parts += _section("newest events", facts(events))
    parts += _section("config", facts(config))
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
        ("devices", devices(run)),
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
