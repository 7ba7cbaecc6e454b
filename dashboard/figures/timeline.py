"""Figure of a run over the wall clock: ranks, restarts, lost steps, checkpoints and evaluations."""

from collections.abc import Callable, Sequence

import plotly.graph_objects as go

from dashboard.figures.style import MUTED, axis, color_of, figure, plain, time_unit
from dashboard.text import formats
from db.queries import AttemptSpan, CheckpointRow, EvaluationRow

_Clock = Callable[[float], float]
"""Unix seconds to the position on the time axis."""
_LOST = "#c9463d"
_MAX_NAMED = 8
_END_SYMBOLS = {"finished": "circle", "preempted": "diamond", "running": "triangle-right"}
_END_COLORS = {"finished": color_of(2), "preempted": color_of(5), "running": color_of(0)}


def timeline_figure(
    stretches: Sequence[AttemptSpan], checkpoints: Sequence[CheckpointRow], evaluations: Sequence[EvaluationRow]
) -> go.Figure:
    """Return the world size over the time since the first start, with marks for events."""
    if not stretches:
        return figure([])
    sizes = {stretch.attempt: stretch.world_size for stretch in stretches}
    start, end = stretches[0].started_at, max(stretch.ended_at for stretch in stretches)
    unit_s, unit = time_unit(end - start)

    def at(t: float) -> float:
        return (t - start) / unit_s

    # A checkpoint often follows an evaluation within a second, so the two kinds are drawn at different heights.
    saved = [(at(row.t), 0.7 * sizes[row.attempt], _saved(row)) for row in checkpoints if row.attempt in sizes]
    scored = [(at(row.t), 0.4 * sizes[row.attempt], _scored(row)) for row in evaluations if row.attempt in sizes]
    traces = [
        _world_size(stretches, at),
        _lost(stretches, at),
        _marks("checkpoint", saved, "line-ns", color_of(3)),
        _marks("evaluation", scored, "star-diamond", color_of(1)),
        _ends(stretches, at, 0.15 * at(end)),
    ]
    largest = max(sizes.values())
    ranks = axis("ranks at work", range=[0, 1.25 * largest], tickformat="d", dtick=max(1, -(-largest // 8)))
    return figure(
        [trace for trace in traces if len(trace.x)],
        f"time since the first start ({unit})",
        yaxis=ranks,
        hovermode="closest",
        height=320,
    )


def _saved(row: CheckpointRow) -> str:
    facts = [f"step {row.step:,}"]
    if row.reason:
        facts.append(plain(row.reason))
    if row.bytes is not None:
        facts.append(formats.size(row.bytes))
    if row.save_time_s is not None:
        facts.append(f"saved in {formats.duration(row.save_time_s)}")
    return ", ".join(facts)


def _scored(row: EvaluationRow) -> str:
    return f"step {row.step:,}, F1 {'unknown' if row.f1 is None else f'{row.f1:.2f}'}"


def _world_size(stretches: Sequence[AttemptSpan], at: _Clock) -> go.Scatter:
    times: list[float] = []
    sizes: list[int] = []
    for stretch in stretches:
        # Zero before and after each attempt, so that a wait between attempts is visible.
        began, ended = at(stretch.started_at), at(stretch.ended_at)
        times += [began, began, ended, ended]
        sizes += [0, stretch.world_size, stretch.world_size, 0]
    return go.Scatter(
        name="ranks",
        x=times,
        y=sizes,
        mode="lines",
        line={"color": color_of(0), "width": 2},
        fill="tozeroy",
        fillcolor="rgba(68, 119, 200, 0.15)",
        hoverinfo="skip",
    )


def _lost(stretches: Sequence[AttemptSpan], at: _Clock) -> go.Scatter:
    times: list[float | None] = []
    sizes: list[int | None] = []
    texts: list[str | None] = []
    for stretch in stretches:
        if stretch.lost_since is None:
            continue
        times += [at(stretch.lost_since), at(stretch.ended_at), None]
        sizes += [stretch.world_size, stretch.world_size, None]
        texts += [f"attempt {stretch.attempt}: {stretch.num_redone:,} steps lost and redone"] * 2 + [None]
    return go.Scatter(
        name="lost and redone",
        x=times,
        y=sizes,
        text=texts,
        mode="lines",
        line={"color": _LOST, "width": 6},
        hovertemplate="%{text}<extra></extra>",
    )


def _marks(name: str, points: list[tuple[float, float, str]], symbol: str, color: str) -> go.Scatter:
    return go.Scatter(
        name=name,
        x=[x for x, _, _ in points],
        y=[y for _, y, _ in points],
        text=[text for _, _, text in points],
        mode="markers",
        marker={"symbol": symbol, "color": color, "size": 11, "line": {"width": 2, "color": color}},
        hovertemplate=f"{name}, %{{text}}<extra></extra>",
    )


def _ends(stretches: Sequence[AttemptSpan], at: _Clock, early: float) -> go.Scatter:
    return go.Scatter(
        name="end of an attempt",
        x=[at(stretch.ended_at) for stretch in stretches],
        y=[stretch.world_size for stretch in stretches],
        text=[plain(stretch.status) for stretch in stretches],
        hovertext=[_end(stretch) for stretch in stretches],
        mode="markers+text" if len(stretches) <= _MAX_NAMED else "markers",
        # Put the text of an early mark on its right: on its left it would start outside the figure.
        textposition=["top right" if at(stretch.ended_at) < early else "top left" for stretch in stretches],
        marker={
            "symbol": [_END_SYMBOLS.get(stretch.status, "x") for stretch in stretches],
            "color": [_END_COLORS.get(stretch.status, _LOST) for stretch in stretches],
            "size": 12,
            "line": {"width": 1, "color": MUTED},
        },
        hovertemplate="%{hovertext}<extra></extra>",
    )


def _end(stretch: AttemptSpan) -> str:
    lines = [f"attempt {stretch.attempt}: {plain(stretch.status)}"]
    if stretch.reason:
        lines.append(plain(stretch.reason))
    if stretch.first_step is not None:
        lines.append(f"steps {stretch.first_step:,} to {stretch.last_step:,}")
    if stretch.num_redone:
        lines.append(f"{stretch.num_redone:,} of these lost and redone")
    return "<br>".join(lines)
