"""A run over the wall clock: ranks at work, restarts, what was lost, checkpoints and evaluations."""

from collections.abc import Sequence

import plotly.graph_objects as go

from dashboard.figures.style import MUTED, axis, color_of, figure, plain
from db.queries import CheckpointRow, EvaluationRow, Stretch

_LOST = "#c9463d"
# A checkpoint often follows an evaluation within a second: each kind has a height of its own in its attempt's block.
_CHECKPOINT_LANE, _EVALUATION_LANE = 0.7, 0.4
_MOST_NAMED = 8
_END_SYMBOLS = {"finished": "circle", "preempted": "diamond", "running": "triangle-right"}
_END_COLORS = {"finished": color_of(2), "preempted": color_of(5), "running": color_of(0)}


def timeline_figure(
    stretches: Sequence[Stretch], checkpoints: Sequence[CheckpointRow], evaluations: Sequence[EvaluationRow]
) -> go.Figure:
    """Return the world size as steps over the minutes since the first start, with what happened on top."""
    if not stretches:
        return figure([], "", "")
    sizes = {stretch.attempt: stretch.world_size for stretch in stretches}
    start = stretches[0].started_at
    traces = [_world_size(stretches, start)]
    if any(stretch.lost_since is not None for stretch in stretches):
        traces.append(_lost(stretches, start))
    saved = [row for row in checkpoints if row.attempt in sizes]
    texts = [f"step {row.step:,}, {plain(row.reason or '')}" for row in saved]
    heights = {attempt: _CHECKPOINT_LANE * size for attempt, size in sizes.items()}
    traces.append(_marks("checkpoint", saved, texts, heights, start, ("line-ns", color_of(3))))
    scored = [row for row in evaluations if row.attempt in sizes]
    texts = [f"step {row.step:,}, F1 {'unknown' if row.f1 is None else f'{row.f1:.2f}'}" for row in scored]
    heights = {attempt: _EVALUATION_LANE * size for attempt, size in sizes.items()}
    traces.append(_marks("evaluation", scored, texts, heights, start, ("star-diamond", color_of(1))))
    traces.append(_ends(stretches, start))
    largest = max(sizes.values())
    ranks = axis("ranks at work", range=[0, 1.25 * largest], tickformat="d", dtick=max(1, -(-largest // 8)))
    return figure(
        [trace for trace in traces if len(trace.x)],
        "time since the first start (min)",
        "",
        yaxis=ranks,
        hovermode="closest",
        height=320,
    )


def _world_size(stretches: Sequence[Stretch], start: float) -> go.Scatter:
    minutes: list[float] = []
    sizes: list[int] = []
    for stretch in stretches:
        # Down to none before and after, so that a wait between attempts shows as one.
        minutes += [
            (t - start) / 60 for t in (stretch.started_at, stretch.started_at, stretch.ended_at, stretch.ended_at)
        ]
        sizes += [0, stretch.world_size, stretch.world_size, 0]
    return go.Scatter(
        name="ranks",
        x=minutes,
        y=sizes,
        mode="lines",
        line={"color": color_of(0), "width": 2},
        fill="tozeroy",
        fillcolor="rgba(68, 119, 200, 0.15)",
        hoverinfo="skip",
    )


def _lost(stretches: Sequence[Stretch], start: float) -> go.Scatter:
    minutes: list[float | None] = []
    sizes: list[int | None] = []
    texts: list[str | None] = []
    for stretch in stretches:
        if stretch.lost_since is None:
            continue
        minutes += [(stretch.lost_since - start) / 60, (stretch.ended_at - start) / 60, None]
        sizes += [stretch.world_size, stretch.world_size, None]
        texts += [f"attempt {stretch.attempt}: {stretch.num_redone:,} steps lost and redone"] * 2 + [None]
    return go.Scatter(
        name="lost and redone",
        x=minutes,
        y=sizes,
        text=texts,
        mode="lines",
        line={"color": _LOST, "width": 6},
        hovertemplate="%{text}<extra></extra>",
    )


def _marks(
    name: str,
    rows: Sequence[CheckpointRow] | Sequence[EvaluationRow],
    texts: list[str],
    heights: dict[int, float],
    start: float,
    look: tuple[str, str],
) -> go.Scatter:
    symbol, color = look
    return go.Scatter(
        name=name,
        x=[(row.t - start) / 60 for row in rows],
        y=[heights[row.attempt] for row in rows],
        text=texts,
        mode="markers",
        marker={"symbol": symbol, "color": color, "size": 11, "line": {"width": 2, "color": color}},
        hovertemplate=f"{name}, %{{text}}<extra></extra>",
    )


def _ends(stretches: Sequence[Stretch], start: float) -> go.Scatter:
    return go.Scatter(
        name="why an attempt ended",
        x=[(stretch.ended_at - start) / 60 for stretch in stretches],
        y=[stretch.world_size for stretch in stretches],
        text=[plain(stretch.status) for stretch in stretches],
        hovertext=[_end(stretch) for stretch in stretches],
        mode="markers+text" if len(stretches) <= _MOST_NAMED else "markers",
        textposition="top left",
        marker={
            "symbol": [_END_SYMBOLS.get(stretch.status, "x") for stretch in stretches],
            "color": [_END_COLORS.get(stretch.status, _LOST) for stretch in stretches],
            "size": 12,
            "line": {"width": 1, "color": MUTED},
        },
        hovertemplate="%{hovertext}<extra></extra>",
    )


def _end(stretch: Stretch) -> str:
    lines = [f"attempt {stretch.attempt}: {plain(stretch.status)}"]
    if stretch.reason:
        lines.append(plain(stretch.reason))
    if stretch.first_step is not None:
        lines.append(f"steps {stretch.first_step:,} to {stretch.last_step:,}")
    if stretch.num_redone:
        lines.append(f"{stretch.num_redone:,} of them lost and redone")
    return "<br>".join(lines)
