"""Figure of profiler traces: share of time by kind of work, one bar per trace or device."""

from collections.abc import Sequence

import plotly.graph_objects as go

from dashboard.figures.style import MUTED, axis, color_of, figure, plain, row_axis
from db.queries import TimePart

_COLORS = {
    "compute": color_of(2),
    "exposed communication": color_of(1),
    "copies alone": color_of(5),
    "idle, host-bound": color_of(4),
    "idle, other": MUTED,
    "host in operators": color_of(0),
    "host outside operators": "#5d6470",
}


def parts_figure(bars: Sequence[tuple[str, Sequence[TimePart]]]) -> go.Figure:
    """Return a stacked bar in percent for each (name, parts); names may repeat."""
    whats = list(dict.fromkeys(part.what for _, parts in bars for part in parts))
    # Add traces in the order of the colours, so that the legend always has the same order.
    traces = [_bars_of(what, bars) for what in _COLORS if what in whats]
    return figure(
        traces,
        barmode="stack",
        bargap=0.3,
        height=120 + 34 * max(1, len(bars)),
        hovermode="closest",
        yaxis=row_axis([plain(name) for name, _ in bars]),
        xaxis=axis("share of the trace's time (%)", range=[0, 100]),
        margin={"l": 16, "r": 16, "t": 40, "b": 48},
        showlegend=True,
        legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "traceorder": "normal"},
    )


def _bars_of(what: str, bars: Sequence[tuple[str, Sequence[TimePart]]]) -> go.Bar:
    shares = [(row, part.share) for row, (_, parts) in enumerate(bars) for part in parts if part.what == what]
    return go.Bar(
        name=what,
        y=[row for row, _ in shares],
        x=[100 * share for _, share in shares],
        orientation="h",
        marker={"color": _COLORS[what]},
        hovertemplate=f"%{{x:.1f}} %<extra>{what}</extra>",
    )
