"""Figures of a run's time by kind of work, processor and GPU use, and memory."""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby, product
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
    return figure(
        traces,
        f"wall clock ({unit})",
        barmode="stack",
        height=170,
        hovermode="closest",
        bargap=0.2,
        margin={"l": 16, "r": 16, "t": 16, "b": 48},
        legend={"orientation": "h", "x": 0, "y": 1.05, "yanchor": "bottom", "traceorder": "normal"},
    )


def utilization_figure(samples: Sequence[SystemRow]) -> go.Figure:
    """Return the use of processors and GPUs over time, two lines per node."""
    measures = {"CPU": lambda row: row.cpu_percent, "GPU": _gpu_percent}
    return _lines_of_nodes(samples, measures, axis("use (%)", range=[0, 105]))


def memory_figure(samples: Sequence[SystemRow]) -> go.Figure:
    """Return the memory in use over time: of each node, and the sum of its GPUs."""
    measures = {"host": lambda row: row.memory_bytes and row.memory_bytes / GIB, "GPUs": _gpu_gib}
    return _lines_of_nodes(samples, measures, axis("memory in use (GiB)", rangemode="tozero"))


def _lines_of_nodes(
    samples: Sequence[SystemRow], measures: Mapping[str, Callable[[SystemRow], float | None]], y_axis: dict[str, Any]
) -> go.Figure:
    """Return a line for each node and measure that has values."""
    unit_s, unit = time_unit(samples[-1].t - samples[0].t if samples else 0.0)
    nodes = sorted({row.node_rank for row in samples})
    traces = []
    for index, (node, (name, value)) in enumerate(product(nodes, measures.items())):
        points: list[tuple[float | None, float | None]] = []
        of_node = [row for row in samples if row.node_rank == node]
        for _, of_attempt in groupby(of_node, key=lambda row: row.attempt):
            points += [((row.t - samples[0].t) / unit_s, value(row)) for row in of_attempt]
            # Add a point without a value, which interrupts the line: there are no samples between attempts.
            points.append((None, None))
        if any(y is not None for _, y in points):
            traces.append(
                go.Scatter(
                    name=f"{name}, node {node}",
                    x=[x for x, _ in points],
                    y=[y for _, y in points],
                    mode="lines",
                    line={"color": color_of(index), "width": 1.5},
                    hovertemplate="%{y:.3~g}",
                )
            )
    return figure(traces, f"time since the first sample ({unit})", yaxis=y_axis)


def _gpu_values(row: SystemRow, field: str) -> list[float]:
    """Return a field of all GPUs of a sample, without missing and invalid values."""
    values = [gpu.get(field) for gpu in row.gpus if isinstance(gpu, dict)]
    return [value for value in values if isinstance(value, int | float)]


def _gpu_percent(row: SystemRow) -> float | None:
    values = _gpu_values(row, "utilization_percent")
    return sum(values) / len(values) if values else None


def _gpu_gib(row: SystemRow) -> float | None:
    values = _gpu_values(row, "memory_bytes")
    return sum(values) / GIB if values else None
