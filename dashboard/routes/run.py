"""One run at /runs/{run_id}."""

from dataclasses import dataclass

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from dashboard.configuration import grouped
from dashboard.pages import page
from dashboard.routes.dependencies import NowDep, SessionDep
from db import queries

MOST_ROWS = 100
"""Of checkpoints, events and evaluations a page shows the newest so many; /api has more."""

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class AttemptView:
    """An attempt as its row shows it."""

    row: queries.AttemptRow
    num_steps: int
    num_redone: int
    is_same_environment: bool
    """Hosts, software and commit are those of the attempt before, so they are not shown again."""


@router.get("/runs/{run_id}")
def run(request: Request, session: SessionDep, now: NowDep, run_id: str) -> Response:
    """Show one run."""
    found = queries.get_run(session, run_id, now)
    attempts = queries.attempts_of(session, run_id, now)
    lineage = queries.lineage_of(session, run_id)
    evaluations = queries.evaluations_of(session, run_id)
    context = {
        "now": now,
        "run": found,
        "is_live": found.status == "running",
        "settings": grouped(found.config),
        "attempts": _views(attempts, lineage),
        "has_steps": bool(lineage),
        "has_samples": bool(queries.system_samples_of(session, run_id, max_points=1)),
        "evaluations": evaluations[-MOST_ROWS:][::-1],
        "checkpoints": queries.checkpoints_of(session, run_id, MOST_ROWS),
        "events": queries.events_of(session, run_id, MOST_ROWS),
        "shares": queries.time_shares(session, run_id, attempts),
        "most_rows": MOST_ROWS,
    }
    return page(request, "run.html", context)


def _views(attempts: list[queries.AttemptRow], lineage: list[queries.AttemptSteps]) -> list[AttemptView]:
    steps = {part.attempt: part for part in lineage}
    views = []
    for index, row in enumerate(attempts):
        part = steps.get(row.attempt)
        num_steps = part.last_step - part.first_step + 1 if part else 0
        before = attempts[index - 1] if index else None
        is_same = before is not None and _environment(before) == _environment(row)
        views.append(AttemptView(row, num_steps, part.num_redone if part else 0, is_same))
    return views


def _environment(row: queries.AttemptRow) -> tuple[object, ...]:
    return row.hosts, row.software, row.git, row.setup, row.command
