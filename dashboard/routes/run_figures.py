"""The figures of the page of a run, below /figures/runs/{run_id}.

To add one: an entry in `FIGURES` that queries the rows and passes them to a function of `figures/`, and a `ui.chart` in
the template.
"""

from collections.abc import Callable
from dataclasses import replace

import plotly.graph_objects as go
from fastapi import APIRouter, HTTPException
from sqlalchemy.orm import Session
from starlette.responses import Response

from dashboard.figures import machine, run
from dashboard.figures.timeline import timeline_figure
from dashboard.rendering.responses import figure_response
from dashboard.routes.dependencies import NowDep, SessionDep
from db import queries

MAX_POINTS = 800
MAX_MARKS = 300
router = APIRouter(prefix="/figures", include_in_schema=False)


def _losses(session: Session, found: queries.RunDetail) -> list[queries.LossPoint]:
    return queries.loss_series(session, found.run_id, MAX_POINTS)


def _rates(session: Session, found: queries.RunDetail) -> list[queries.ThroughputPoint]:
    return queries.throughput_series(session, found.run_id, MAX_POINTS)


def _loss(session: Session, found: queries.RunDetail) -> go.Figure:
    return run.loss_figure(_losses(session, found), queries.loss_series(session, found.run_id, MAX_POINTS, redone=True))


def _time(session: Session, found: queries.RunDetail) -> go.Figure:
    attempts = queries.attempts_of(session, found.run_id, now=0.0)
    return machine.time_figure(queries.time_shares(session, found.run_id, attempts))


def _timeline(session: Session, found: queries.RunDetail) -> go.Figure:
    attempts = queries.attempts_of(session, found.run_id, now=0.0)
    # Take the newest attempt's status from the run, which was queried with the current time.
    attempts[-1:] = [replace(attempt, status=found.status) for attempt in attempts[-1:]]
    return timeline_figure(
        queries.timeline_of(session, found.run_id, attempts),
        queries.checkpoints_of(session, found.run_id, MAX_MARKS),
        queries.evaluations_of(session, found.run_id)[-MAX_MARKS:],
    )


FIGURES: dict[str, Callable[[Session, queries.RunDetail], go.Figure]] = {
    "timeline": _timeline,
    "loss": _loss,
    "optimizer": lambda session, found: run.optimizer_figure(_losses(session, found)),
    "throughput": lambda session, found: run.throughput_figure(_rates(session, found), found.samples_per_s),
    "step_time": lambda session, found: run.step_time_figure(_rates(session, found)),
    "tokens": lambda session, found: run.tokens_figure(_rates(session, found)),
    "evaluation": lambda session, found: run.evaluation_figure(queries.evaluations_of(session, found.run_id)),
    "time": _time,
    "utilization": lambda session, found: machine.utilization_figure(queries.system_samples_of(session, found.run_id)),
    "memory": lambda session, found: machine.memory_figure(queries.system_samples_of(session, found.run_id)),
}


@router.get("/runs/{run_id}/{name}.json")
def run_figure(session: SessionDep, now: NowDep, run_id: str, name: str) -> Response:
    """Return a figure of one run."""
    if name not in FIGURES:
        raise HTTPException(404, f"no chart {name!r}: there are {', '.join(FIGURES)}")
    return figure_response(FIGURES[name](session, queries.get_run(session, run_id, now)))
