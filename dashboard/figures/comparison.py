"""Figures that compare groups of repeats: every run is a dot, the median of a group a bar."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import plotly.graph_objects as go

from dashboard.figures.style import axis, color_of, figure, plain, time_unit
from dashboard.text import formats, labels
from db.queries import Group, distinguishing_settings, statistics

_STRATEGY_COLORS = {"none": color_of(0), "ddp": color_of(2), "fsdp": color_of(1)}
_OTHER_COLOR = color_of(3)


def wall_clock_figure(groups: Sequence[Group]) -> go.Figure:
    """Return the wall clock of every run, one row of dots per group; hollow dots are reported runs."""
    unit_s, unit = time_unit(max((value for group in groups for value in group.values_of("wall_clock_s")), default=0))
    return _dots(groups, "wall_clock_s", 1 / unit_s, f"wall clock ({unit})", _name)


def throughput_figure(groups: Sequence[Group]) -> go.Figure:
    """Return features per second of every run, one row of dots per group; hollow dots are reported runs."""
    return _dots(groups, "samples_per_s", 1.0, "features/s (all ranks, without warm-up)", _name_with_device)


def _dots(groups: Sequence[Group], measure: str, scale: float, x_title: str, name: Callable[[Group], str]) -> go.Figure:
    settings = distinguishing_settings(groups, name)
    rows = axis(
        "",
        tickvals=list(range(len(groups))),
        ticktext=["<br>".join(filter(None, (name(group), plain(" · ".join(settings[group.key]))))) for group in groups],
        range=[len(groups) - 0.5, -0.5],
        automargin=True,
    )
    return figure(
        _traces(groups, measure, scale),
        x_title,
        "",
        height=90 + 34 * max(1, len(groups)),
        hovermode="closest",
        showlegend=False,
        yaxis=rows,
        xaxis=axis(x_title, rangemode="tozero"),
        margin={"l": 16, "r": 16, "t": 8, "b": 48},
    )


def _traces(groups: Sequence[Group], measure: str, scale: float) -> list[go.Scatter]:
    """Return one trace per marker style, not per group: creating a trace takes Plotly half a millisecond."""
    dots: dict[tuple[str, str], _Points] = {}
    medians: dict[str, _Points] = {}
    order: list[_Points] = []
    for row, group in enumerate(groups):
        color = _STRATEGY_COLORS.get(group.setting.parallel or "", _OTHER_COLOR)
        symbol = "circle-open" if group.setting.provenance == "reported" else "circle"
        if (color, symbol) not in dots:
            size = {"size": 10, "symbol": symbol, "opacity": 0.75, "line": {"width": 2, "color": color}}
            dots[color, symbol] = _Points({"color": color, **size}, "%{x:.4~g}<extra>%{text}</extra>")
            order.append(dots[color, symbol])
        repeats = [repeat for repeat in group.repeats if getattr(repeat, measure) is not None]
        values = [getattr(repeat, measure) * scale for repeat in repeats]
        for value, repeat in zip(values, repeats, strict=True):
            dots[color, symbol].add(value, row, plain(repeat.name or repeat.run_id))
        if len(values) < 2:
            continue
        if color not in medians:
            size = {"size": 22, "symbol": "line-ns", "line": {"width": 3, "color": color}}
            medians[color] = _Points({"color": color, **size}, "median %{x:.4~g}<extra></extra>")
            order.append(medians[color])
        medians[color].add(statistics.median(values), row)
    return [points.trace() for points in order]


@dataclass
class _Points:
    """Points of one marker style."""

    marker: dict[str, Any]
    hover: str
    x: list[float] = field(default_factory=list)
    y: list[int] = field(default_factory=list)
    text: list[str] = field(default_factory=list)

    def add(self, x: float, y: int, text: str = "") -> None:
        """Add a point with its hover text."""
        self.x.append(x)
        self.y.append(y)
        self.text.append(text)

    def trace(self) -> go.Scatter:
        """Return the points as one trace."""
        return go.Scatter(
            x=self.x, y=self.y, text=self.text, mode="markers", marker=self.marker, hovertemplate=self.hover
        )


def _name(group: Group) -> str:
    provenance = group.setting.provenance
    suffix = "" if provenance == "measured" else f" ({plain(provenance)})"
    return plain(labels.group(group.setting)) + suffix


def _name_with_device(group: Group) -> str:
    return f"{_name(group)}, {plain(formats.short_device(group.setting.device_name))}"
