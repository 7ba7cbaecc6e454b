"""Figures of a run's time by kind of work, processor and GPU use, and memory."""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import plotly.graph_objects as go

from dashboard.figures.style import MUTED, axis, color_of, figure, time_unit
from db.queries import SystemRow, TimeShare

GIB = 2**30
_TIME_COLORS = {
    "steps": color_of(0),
    "warm-up steps": color_of(3),
    "redone steps": color_of(4),
    "evaluation": color_of(2),
    "checkpoints": color_of(5),
    "setup": color_of(1),
    "waits": "#5d6470",
    "other": MUTED,
}


def time_figure(shares: Sequence[TimeShare]) -> go.Figure:
    """Return the wall clock as one bar, stacked by kind of work."""
    whole = sum(share.seconds for share in shares)
    unit_s, unit = time_unit(whole)
    traces = [
        go.Bar(
            name=share.what,
            y=[""],
            x=[share.seconds / unit_s],
            orientation="h",
            marker={"color": _TIME_COLORS[share.what]},
            hovertemplate=f"{share.seconds:,.1f} s, {share.seconds / whole:.1%}<extra>{share.what}</extra>",
        )
        for share in shares
    ]
    layout: dict[str, Any] = {"barmode": "stack", "height": 170, "hovermode": "closest", "bargap": 0.2}
    legend = {"orientation": "h", "x": 0, "y": 1.05, "yanchor": "bottom", "traceorder": "normal"}
    return figure(
        traces, f"wall clock ({unit})", "", margin={"l": 16, "r": 16, "t": 16, "b": 48}, legend=legend, **layout
    )


def utilization_figure(samples: Sequence[SystemRow]) -> go.Figure:
    """Return the use of processors and GPUs over time, two lines per node."""
    traces = []
    for index, (node, own) in enumerate(_by_node(samples)):
        traces.append(_series(f"CPU, {node}", own, samples, lambda row: row.cpu_percent, 2 * index))
        traces.append(_series(f"GPU, {node}", own, samples, _gpu_percent, 2 * index + 1))
    y_axis = axis("use (%)", range=[0, 105])
    return figure(_with_values(traces), _time_title(samples), "", yaxis=y_axis)


def memory_figure(samples: Sequence[SystemRow]) -> go.Figure:
    """Return the memory in use over time: of each node, and the sum of its GPUs."""
    traces = []
    for index, (node, own) in enumerate(_by_node(samples)):
        traces.append(_series(f"host, {node}", own, samples, lambda row: _gib(row.memory_bytes), 2 * index))
        traces.append(_series(f"GPUs, {node}", own, samples, _gpu_gib, 2 * index + 1))
    y_axis = axis("memory in use (GiB)", rangemode="tozero")
    return figure(_with_values(traces), _time_title(samples), "", yaxis=y_axis)


def _by_node(samples: Sequence[SystemRow]) -> list[tuple[str, list[SystemRow]]]:
    nodes = sorted({row.node_rank for row in samples})
    return [(f"node {node}", [row for row in samples if row.node_rank == node]) for node in nodes]


def _series(
    name: str,
    own: Sequence[SystemRow],
    samples: Sequence[SystemRow],
    value: Callable[[SystemRow], float | None],
    color: int,
) -> go.Scatter:
    unit_s, _ = _unit_of(samples)
    times: list[float | None] = []
    values: list[float | None] = []
    for _, of_attempt in groupby(own, key=lambda row: row.attempt):
        for row in of_attempt:
            times.append((row.t - samples[0].t) / unit_s)
            values.append(value(row))
        # A gap: there are no samples between attempts.
        times.append(None)
        values.append(None)
    return go.Scatter(
        name=name,
        x=times,
        y=values,
        mode="lines",
        line={"color": color_of(color), "width": 1.5},
        hovertemplate="%{y:.3~g}",
    )


def _unit_of(samples: Sequence[SystemRow]) -> tuple[float, str]:
    return time_unit(samples[-1].t - samples[0].t if samples else 0.0)


def _time_title(samples: Sequence[SystemRow]) -> str:
    return f"time since the first sample ({_unit_of(samples)[1]})"


def _with_values(traces: list[go.Scatter]) -> list[go.Scatter]:
    return [trace for trace in traces if any(value is not None for value in trace.y)]


def _gpu_values(row: SystemRow, field: str) -> list[float]:
    """Return a field of all GPUs of a sample, without missing and invalid values."""
    values = [gpu.get(field) for gpu in row.gpus if isinstance(gpu, dict)]
    return [value for value in values if isinstance(value, int | float)]


def _gpu_percent(row: SystemRow) -> float | None:
    values = _gpu_values(row, "utilization_percent")
    return sum(values) / len(values) if values else None


def _gpu_gib(row: SystemRow) -> float | None:
    values = _gpu_values(row, "memory_bytes")
    return _gib(sum(values)) if values else None


def _gib(num_bytes: float | None) -> float | None:
    return None if num_bytes is None else num_bytes / GIB
