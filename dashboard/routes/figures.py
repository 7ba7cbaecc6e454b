"""Figures as JSON, fetched by the pages."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

import plotly.graph_objects as go
from fastapi import APIRouter, HTTPException, Query
from sqlalchemy.orm import Session
from starlette.responses import Response

from dashboard.figures import comparison, machine, run
from dashboard.figures.profile import parts_figure
from dashboard.figures.timeline import timeline_figure
from dashboard.routes.dependencies import GroupsDep, NowDep, SessionDep
from dashboard.routes.profile import TraceQuery
from dashboard.routes.profiler import ProfilerQuery, bar_name, shown
from dashboard.routes.speedup import place, shown_groups
from dashboard.routes.throughput import ThroughputQuery
from dashboard.routes.throughput import shown_groups as fastest_groups
from db import queries

MOST_POINTS = 800
MOST_MARKS = 300
MOST_DEVICES = 32
router = APIRouter(prefix="/figures", include_in_schema=False)


def _loss(session: Session, found: queries.RunDetail) -> go.Figure:
    kept = queries.loss_series(session, found.run_id, MOST_POINTS)
    return run.loss_figure(kept, queries.redone_loss_series(session, found.run_id, MOST_POINTS))


def _optimizer(session: Session, found: queries.RunDetail) -> go.Figure:
    return run.optimizer_figure(queries.loss_series(session, found.run_id, MOST_POINTS))


def _throughput(session: Session, found: queries.RunDetail) -> go.Figure:
    series = queries.throughput_series(session, found.run_id, MOST_POINTS)
    return run.throughput_figure(series, found.samples_per_s)


def _step_time(session: Session, found: queries.RunDetail) -> go.Figure:
    return run.step_time_figure(queries.throughput_series(session, found.run_id, MOST_POINTS))


def _tokens(session: Session, found: queries.RunDetail) -> go.Figure:
    return run.tokens_figure(queries.throughput_series(session, found.run_id, MOST_POINTS))


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
    # Whether the newest attempt is lost depends on the time, which the run has been asked with.
    attempts[-1:] = [replace(attempt, status=found.status) for attempt in attempts[-1:]]
    return timeline_figure(
        queries.timeline_of(session, found.run_id, attempts),
        queries.checkpoints_of(session, found.run_id, MOST_MARKS),
        queries.evaluations_of(session, found.run_id)[-MOST_MARKS:],
    )


CHARTS: dict[str, Callable[[Session, queries.RunDetail], go.Figure]] = {
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


@router.get("/runs/{run_id}/profile.json")
def profile_figure(session: SessionDep, now: NowDep, run_id: str, query: Annotated[TraceQuery, Query()]) -> Response:
    """Return how each device of a trace spent its span, or the host where the trace has no device."""
    queries.get_run(session, run_id, now)
    key = query.chosen(queries.profile_keys(session, run_id))
    summary = queries.profile_of(session, run_id, key).summary
    span_us = summary.span_us
    bars = [(f"device {row.device}", queries.device_parts(row, span_us)) for row in summary.devices if span_us]
    return _json(parts_figure(bars[:MOST_DEVICES] or [("host", queries.time_parts(summary))]))


@router.get("/runs/{run_id}/{chart}.json")
def run_figure(session: SessionDep, now: NowDep, run_id: str, chart: str) -> Response:
    """Return a figure of one run."""
    if chart not in CHARTS:
        raise HTTPException(404, f"no chart {chart!r}: there are {', '.join(CHARTS)}")
    return _json(CHARTS[chart](session, queries.get_run(session, run_id, now)))


@router.get("/speedup.json")
def speedup_figure(
    session: SessionDep,
    known: GroupsDep,
    recipe: str = "",
    study: str = "",
    section: str = "",
    reference: Annotated[tuple[str, ...], Query()] = (),
) -> Response:
    """Return the wall clocks of one section of the page, in the order of its table."""
    shown = shown_groups(known.get(session, queries.speedup_groups, recipe or None, None, study or None), reference)
    groups = [group for group in shown if (group.setting.recipe or "") == section]
    return _json(comparison.wall_clock_figure(sorted(groups, key=place)))


@router.get("/throughput.json")
def throughput_figure(session: SessionDep, known: GroupsDep, query: Annotated[ThroughputQuery, Query()]) -> Response:
    """Return the throughput of every group of the page, in the order of its table."""
    groups = known.get(session, queries.throughput_groups, query.recipe or None)
    return _json(comparison.throughput_figure(fastest_groups(groups, query).groups))


@router.get("/profiler.json")
def profiler_figure(session: SessionDep, query: Annotated[ProfilerQuery, Query()]) -> Response:
    """Return how each trace of the page spent its span, in the order of its table."""
    runs = [(found, queries.time_parts(found.profile.summary)) for found in shown(session, query).rows]
    return _json(parts_figure([(bar_name(found), parts) for found, parts in runs]))


def _json(figure: go.Figure) -> Response:
    return Response(figure.to_json(), media_type="application/json")
