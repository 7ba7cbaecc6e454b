"""Figures that compare groups of repeats: every run is a dot, the median of a group a bar."""

from collections.abc import Callable, Sequence

import plotly.graph_objects as go

from dashboard.figures.style import axis, color_of, figure, plain, row_axis, time_unit
from dashboard.text import formats, labels
from db.queries import Group, distinguishing_settings, statistics

_STRATEGY_COLORS = {"none": color_of(0), "ddp": color_of(2), "fsdp": color_of(1)}
_OTHER_COLOR = color_of(3)
_MEDIAN = "line-ns"
"""Marker symbol of the medians."""


def wall_clock_figure(groups: Sequence[Group]) -> go.Figure:
    """Return the wall clock of every run, one row of dots per group; hollow dots are reported runs."""
    unit_s, unit = time_unit(max((value for group in groups for value in group.values_of("wall_clock_s")), default=0))
    return _dots(groups, "wall_clock_s", 1 / unit_s, f"wall clock ({unit})", _name)


def throughput_figure(groups: Sequence[Group]) -> go.Figure:
    """Return features per second of every run, one row of dots per group; hollow dots are reported runs."""
    return _dots(groups, "samples_per_s", 1.0, "features/s (all ranks, without warm-up)", _name_with_device)


def _dots(groups: Sequence[Group], measure: str, scale: float, x_title: str, name: Callable[[Group], str]) -> go.Figure:
    settings = distinguishing_settings(groups, name)
    names = ["<br>".join(filter(None, (name(group), plain(" · ".join(settings[group.key]))))) for group in groups]
    return figure(
        _traces(groups, measure, scale),
        height=90 + 34 * max(1, len(groups)),
        hovermode="closest",
        showlegend=False,
        yaxis=row_axis(names),
        xaxis=axis(x_title, rangemode="tozero"),
        margin={"l": 16, "r": 16, "t": 8, "b": 48},
    )


def _traces(groups: Sequence[Group], measure: str, scale: float) -> list[go.Scatter]:
    """Return one trace per colour and symbol, not per group: creating a trace takes Plotly half a millisecond."""
    points: dict[tuple[str, str], list[tuple[float, int, str]]] = {}
    for row, group in enumerate(groups):
        color = _STRATEGY_COLORS.get(group.setting.parallel or "", _OTHER_COLOR)
        dots = [
            (value * scale, row, plain(repeat.name or repeat.run_id))
            for repeat in group.repeats
            if (value := getattr(repeat, measure)) is not None
        ]
        symbol = "circle-open" if group.setting.provenance == "reported" else "circle"
        points.setdefault((color, symbol), []).extend(dots)
        if len(dots) > 1:
            points.setdefault((color, _MEDIAN), []).append((statistics.median([x for x, _, _ in dots]), row, ""))
    return [_scatter(color, symbol, found) for (color, symbol), found in points.items()]


def _scatter(color: str, symbol: str, points: list[tuple[float, int, str]]) -> go.Scatter:
    is_median = symbol == _MEDIAN
    size = {"size": 22, "opacity": 1.0} if is_median else {"size": 10, "opacity": 0.75}
    return go.Scatter(
        x=[x for x, _, _ in points],
        y=[y for _, y, _ in points],
        text=[text for _, _, text in points],
        mode="markers",
        marker={"color": color, "symbol": symbol, "line": {"width": 3 if is_median else 2, "color": color}, **size},
        hovertemplate="median %{x:.4~g}<extra></extra>" if is_median else "%{x:.4~g}<extra>%{text}</extra>",
    )


def _name(group: Group) -> str:
    provenance = group.setting.provenance
    suffix = "" if provenance == "measured" else f" ({plain(provenance)})"
    return plain(labels.group(group.setting)) + suffix


def _name_with_device(group: Group) -> str:
    return f"{_name(group)}, {plain(formats.short_device(group.setting.device_name))}"
