"""Figures of one run over its steps."""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TypeVar

import plotly.graph_objects as go
from plotly.colors import hex_to_rgb

from dashboard.figures.style import MUTED, axis, color_of, figure, plain
from db.queries import EvaluationRow, LossPoint, ThroughputPoint

STEP = "optimizer step"
MAX_NAMED = 6
"""Maximum number of attempts in a legend; more leave no room for the figure, and colours repeat."""
PointT = TypeVar("PointT", LossPoint, ThroughputPoint)


def loss_figure(points: Sequence[LossPoint], redone: Sequence[LossPoint]) -> go.Figure:
    """Return the loss over the steps, one line per attempt; redone steps are faint."""
    traces: list[go.Scatter] = []
    for attempt, own in (parts := _by_attempt(points)):
        if any(point.last_step > point.first_step for point in own):
            traces += _band(own, color_of(attempt - 1))
        line = _line(f"attempt {attempt}", own, lambda point: point.loss, color_of(attempt - 1))
        traces.append(line.update(showlegend=len(parts) <= MAX_NAMED))
    for index, (attempt, own) in enumerate(_by_attempt(redone)):
        line = _line("redone steps", own, lambda point: point.loss, MUTED)
        line.update(line={"dash": "dot", "width": 1.5}, legendgroup="redone", showlegend=index == 0)
        traces.append(line.update(hovertemplate=f"%{{y:.4~g}}, attempt {attempt}"))
    return figure(traces, STEP, yaxis=axis("loss (global batch)"))


def optimizer_figure(points: Sequence[LossPoint]) -> go.Figure:
    """Return learning rate and gradient norm over the steps, on two axes."""
    rate = _line("learning rate", points, lambda point: point.learning_rate, color_of(0))
    norm = _line("gradient norm", points, lambda point: point.grad_norm, color_of(1))
    norm.update(yaxis="y2", line={"width": 1})
    return figure(
        # Add the smooth curve last: Plotly draws the last trace on top.
        [norm, rate],
        STEP,
        yaxis=axis("learning rate", tickformat="~e"),
        yaxis2=axis("gradient norm", overlaying="y", side="right", showgrid=False, rangemode="tozero", tickmode="auto"),
        margin={"l": 64, "r": 64, "t": 16, "b": 48},
    )


def throughput_figure(points: Sequence[ThroughputPoint], samples_per_s: float | None) -> go.Figure:
    """Return features per second over the steps; warm-up is marked, the run's throughput is a dashed line."""
    traces: list[go.Scatter] = []
    for attempt, own in (parts := _by_attempt([point for point in points if not point.is_warmup])):
        line = _line(f"attempt {attempt}", own, lambda point: point.samples_per_s, color_of(attempt - 1))
        traces.append(line.update(showlegend=len(parts) <= MAX_NAMED))
    warmup = [point for point in points if point.is_warmup]
    if warmup:
        marks = _line("warm-up, not counted", warmup, lambda point: point.samples_per_s, MUTED)
        traces.append(marks.update(mode="markers", marker={"symbol": "circle-open", "size": 6}))
    line = {"type": "line", "line": {"color": MUTED, "width": 1, "dash": "dash"}}
    span = {"xref": "paper", "x0": 0, "x1": 1, "y0": samples_per_s, "y1": samples_per_s}
    shapes = [] if samples_per_s is None else [line | span]
    return figure(traces, STEP, yaxis=axis("features/s (all ranks)", rangemode="tozero"), shapes=shapes)


def step_time_figure(points: Sequence[ThroughputPoint]) -> go.Figure:
    """Return the time of a step and its wait for data, in milliseconds."""
    steady = [point for point in points if not point.is_warmup]
    step = _line("step", steady, lambda point: point.step_time_s and 1000 * point.step_time_s, color_of(0))
    slowest = _line("slowest step", steady, lambda point: point.step_time_s_max and 1000 * point.step_time_s_max, MUTED)
    data = _line("data", steady, lambda point: point.data_time_s and 1000 * point.data_time_s, color_of(1))
    slowest.update(line={"width": 1, "dash": "dot"})
    is_thinned = any(point.last_step > point.first_step for point in steady)
    y_axis = axis("time of a step (ms, rank 0)", rangemode="tozero")
    return figure([step, data, *([slowest] if is_thinned else [])], STEP, yaxis=y_axis)


def tokens_figure(points: Sequence[ThroughputPoint]) -> go.Figure:
    """Return the tokens of the fullest rank and the mean over the ranks."""
    known = [point for point in points if point.max_rank_tokens is not None]
    fullest = _line("fullest rank", known, lambda point: point.max_rank_tokens, color_of(1))
    mean = _line("mean rank", known, lambda point: point.mean_rank_tokens, color_of(0))
    return figure([fullest, mean], STEP, yaxis=axis("real tokens of a step", rangemode="tozero"))


def evaluation_figure(rows: Sequence[EvaluationRow]) -> go.Figure:
    """Return EM and F1 over the steps, two lines per split."""
    traces = []
    splits = sorted({row.split for row in rows})
    for index, split in enumerate(splits):
        of_split = [row for row in rows if row.split == split]
        suffix = f" ({plain(split)})" if len(splits) > 1 else ""
        for offset, measure in enumerate(("f1", "em")):
            traces.append(
                go.Scatter(
                    name=measure.upper() + suffix,
                    x=[row.step for row in of_split],
                    y=[getattr(row, measure) for row in of_split],
                    mode="lines+markers",
                    line={"color": color_of(2 * index + offset)},
                    hovertemplate="%{y:.2f} %",
                )
            )
    return figure(traces, STEP, yaxis=axis("score (%)"))


def _by_attempt(points: Sequence[PointT]) -> list[tuple[int, list[PointT]]]:
    return [(attempt, list(own)) for attempt, own in groupby(points, key=lambda point: point.attempt)]


def _middle(point: LossPoint | ThroughputPoint) -> float:
    return (point.first_step + point.last_step) / 2


def _line(name: str, points: Sequence[PointT], value: Callable[[PointT], float | None], color: str) -> go.Scatter:
    return go.Scatter(
        name=name,
        x=[_middle(point) for point in points],
        y=[value(point) for point in points],
        # A single point has no line.
        mode="lines" if len(points) > 1 else "markers",
        line={"color": color, "width": 2},
        hovertemplate="%{y:.4~g}",
    )


def _band(points: Sequence[LossPoint], color: str) -> list[go.Scatter]:
    """Return the area between the smallest and the largest loss of points that combine several steps."""
    steps = [_middle(point) for point in points]
    common = {
        "x": steps,
        "mode": "lines",
        "line": {"width": 0, "color": color},
        "hoverinfo": "skip",
        "showlegend": False,
    }
    low = go.Scatter(y=[point.loss_min for point in points], **common)
    red, green, blue = hex_to_rgb(color)
    fill = {"fill": "tonexty", "fillcolor": f"rgba({red}, {green}, {blue}, 0.18)"}
    return [low, go.Scatter(y=[point.loss_max for point in points], **fill, **common)]
