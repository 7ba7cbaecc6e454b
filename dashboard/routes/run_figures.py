"""The figures of the page of a run, below /figures/runs/{run_id}.

To add one: a function here that queries the rows and passes them to a function of `figures/`, its name in `FIGURES`,
and a `ui.chart` in the template.
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


def _loss(session: Session, found: queries.RunDetail) -> go.Figure:
    points = queries.loss_series(session, found.run_id, MAX_POINTS)
    return run.loss_figure(points, queries.redone_loss_series(session, found.run_id, MAX_POINTS))


def _optimizer(session: Session, found: queries.RunDetail) -> go.Figure:
    return run.optimizer_figure(queries.loss_series(session, found.run_id, MAX_POINTS))


def _throughput(session: Session, found: queries.RunDetail) -> go.Figure:
    points = queries.throughput_series(session, found.run_id, MAX_POINTS)
    return run.throughput_figure(points, found.samples_per_s)


def _step_time(session: Session, found: queries.RunDetail) -> go.Figure:
    return run.step_time_figure(queries.throughput_series(session, found.run_id, MAX_POINTS))


def _tokens(session: Session, found: queries.RunDetail) -> go.Figure:
    return run.tokens_figure(queries.throughput_series(session, found.run_id, MAX_POINTS))


def _evaluation(session: Session, found: queries.RunDetail) -> go.Figure:
    return run.evaluation_figure(queries.evaluations_of(session, found.run_id))


def _time(session: Session, found: queries.RunDetail) -> go.Figure:
    attempts = queries.attempts_of(session, found.run_id, now=0.0)
    return machine.time_figure(queries.time_shares(session, found.run_id, attempts))


def _utilization(session: Session, found: queries.RunDetail) -> go.Figure:
    return machine.utilization_figure(queries.system_samples_of(session, found.run_id))


def _memory(session: Session, found: queries.RunDetail) -> go.Figure:
    return machine.memory_figure(queries.system_samples_of(session, found.run_id))


def _timeline(session: Session, found: queries.RunDetail) -> go.Figure:
    attempts = queries.attempts_of(session, found.run_id, now=0.0)
    # The status of the newest attempt depends on the time; the run was queried with the right one.
    attempts[-1:] = [replace(attempt, status=found.status) for attempt in attempts[-1:]]
    return timeline_figure(
        queries.timeline_of(session, found.run_id, attempts),
        queries.checkpoints_of(session, found.run_id, MAX_MARKS),
        queries.evaluations_of(session, found.run_id)[-MAX_MARKS:],
    )


FIGURES: dict[str, Callable[[Session, queries.RunDetail], go.Figure]] = {
    "timeline": _timeline,
    "loss": _loss,
    "optimizer": _optimizer,
    "throughput": _throughput,
    "step_time": _step_time,
    "tokens": _tokens,
    "evaluation": _evaluation,
    "time": _time,
    "utilization": _utilization,
    "memory": _memory,
}


@router.get("/runs/{run_id}/{name}.json")
def run_figure(session: SessionDep, now: NowDep, run_id: str, name: str) -> Response:
    """Return a figure of one run."""
    if name not in FIGURES:
        raise HTTPException(404, f"no chart {name!r}: there are {', '.join(FIGURES)}")
    return figure_response(FIGURES[name](session, queries.get_run(session, run_id, now)))
