"""One run at /runs/{run_id}."""

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from dashboard.rendering.responses import render
from dashboard.routes.dependencies import NowDep, RunsDirDep, SessionDep
from db import queries
from db.ingest.step_summaries import SUMMARY_STEPS

MOST_ROWS = 100
"""Maximum number of attempts, checkpoints, events and evaluations on the page (the newest); /api has all."""

MOST_ENVIRONMENTS = 10
_OF_ONE_ATTEMPT = {"start_step", "resumed_from", "setup_time_s", "phases"}

CONFIG_GROUPS = {
    "Model and data": (
        "recipe model dataset eval_file strict max_train_features max_eval_examples max_length doc_stride "
        "max_answer_length"
    ),
    "Learning": (
        "epochs max_steps global_batch_size learning_rate weight_decay warmup_ratio max_grad_norm dropout seed"
    ),
    "Speed and memory": (
        "parallel precision attention micro_batch_size activation_checkpointing compile cuda_graphs kernels reshard"
    ),
}
"""Options by the group in which the page shows them; add a new one here."""

OTHER_GROUP = "Other settings"

router = APIRouter(include_in_schema=False)


@router.get("/runs/{run_id}")
def run(request: Request, session: SessionDep, now: NowDep, runs_dir: RunsDirDep, run_id: str) -> Response:
    """Show one run."""
    found = queries.get_run(session, run_id, now)
    attempts = queries.attempts_of(session, run_id, now)
    lineage = queries.lineage_of(session, run_id)
    evaluations = queries.evaluations_of(session, run_id)
    speed = queries.step_speed_of(session, run_id)
    context = {
        "now": now,
        "run": found,
        "is_here": found.provenance == "reported" or (runs_dir / found.run_id).is_dir(),
        "is_live": found.status == "running",
        "settings": group_config(found.config),
        "attempts": _attempt_rows(attempts, lineage, is_measured=found.provenance == "measured")[-MOST_ROWS:],
        "num_attempts_left_out": max(0, len(attempts) - MOST_ROWS),
        "environments": [list(same) for _, same in groupby(attempts, key=_environment_of)][-MOST_ENVIRONMENTS:],
        "has_steps": bool(lineage),
        "speed": speed,
        "utilization": queries.utilization(found.tokens_per_s, speed, found.world_size, found.device_name),
        "has_times": any((row.ended_at or row.last_seen_at) > row.started_at for row in attempts),
        "has_profile": queries.has_profile(session, run_id),
        "has_samples": queries.has_system_samples(session, run_id),
        "evaluations": evaluations[-MOST_ROWS:][::-1],
        "checkpoints": queries.checkpoints_of(session, run_id, MOST_ROWS),
        "events": queries.events_of(session, run_id, MOST_ROWS),
        "shares": queries.time_shares(session, run_id, attempts),
        "phases": _phases(attempts),
        "most_rows": MOST_ROWS,
        "most_steps": SUMMARY_STEPS,
    }
    return render(request, "run.html", context)


def _attempt_rows(
    attempts: list[queries.AttemptRow], lineage: list[queries.AttemptSteps], *, is_measured: bool
) -> list[tuple[queries.AttemptRow, int | None, int | None]]:
    """Return each attempt with its number of steps and how many of them were redone; None if unknown."""
    steps = {part.attempt: (part.last_step - part.first_step + 1, part.num_redone) for part in lineage}
    rows: list[tuple[queries.AttemptRow, int | None, int | None]] = []
    for row in attempts:
        # An `end` line may have the step even if there are no `step` lines.
        stated = (0, 0) if is_measured else (row.end_step and row.end_step - (row.start_step or 0), None)
        rows.append((row, *steps.get(row.attempt, stated)))
    return rows


def _phases(attempts: list[queries.AttemptRow]) -> list[tuple[str, float]]:
    """Return the seconds of each phase over all attempts, the longest first."""
    seconds: dict[str, float] = {}
    for attempt in attempts:
        for name, of_attempt in attempt.phases.items():
            seconds[name] = seconds.get(name, 0.0) + of_attempt
    return sorted(seconds.items(), key=lambda phase: -phase[1])[:MOST_ROWS]


def _environment_of(row: queries.AttemptRow) -> tuple[object, ...]:
    """Return what is equal for attempts on the same hosts, with the same software, commit, model and data."""
    shared = {name: fact for name, fact in row.setup.items() if name not in _OF_ONE_ATTEMPT}
    return row.hosts, row.software, row.git, shared


def group_config(config: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, Any]]]]:
    """Return (group, [(setting, value)]) of every recorded setting; settings of no group come last.

    >>> group_config({"new": True, "seed": 1})
    [('Learning', [('seed', 1)]), ('Other settings', [('new', True)])]
    """
    groups = {title: names.split() for title, names in CONFIG_GROUPS.items()}
    groups[OTHER_GROUP] = sorted(set(config).difference(*groups.values()))
    found = [(title, [(name, config[name]) for name in names if name in config]) for title, names in groups.items()]
    return [(title, settings) for title, settings in found if settings]
