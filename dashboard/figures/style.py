"""Colours and layout of all figures; the colours are legible on light and on dark."""

import html
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from dashboard.text.formats import short

SERIES = ("#4477c8", "#d97a2b", "#2b9c8a", "#8d68c9", "#c9507a", "#a88a1f")
MUTED = "#8b919b"
_MAX_LABEL = 60


def color_of(index: int) -> str:
    """Return the colour of series number ``index``, from 0; colours repeat after six."""
    return SERIES[index % len(SERIES)]


def plain(text: str) -> str:
    """Return text escaped for Plotly, which would render links and other markup, and shortened.

    >>> plain("<a href='x'>")
    "&lt;a href='x'&gt;"
    """
    return html.escape(short(text, _MAX_LABEL), quote=False)


def time_unit(longest_s: float) -> tuple[float, str]:
    """Return the seconds and the name of the unit for an axis of times up to ``longest_s``.

    >>> time_unit(45), time_unit(1200), time_unit(40_000)
    ((1.0, 's'), (60.0, 'min'), (3600.0, 'h'))
    """
    if longest_s < 120:
        return 1.0, "s"
    return (60.0, "min") if longest_s < 3 * 3600 else (3600.0, "h")


def axis(title: str, **settings: Any) -> dict[str, Any]:
    """Return an axis; its title names the unit."""
    return {"title": {"text": title, "font": {"size": 12}}, "zeroline": False, **settings}


def row_axis(names: Sequence[str]) -> dict[str, Any]:
    """Return a vertical axis of named rows, from the top."""
    numbers = list(range(len(names)))
    return axis("", tickvals=numbers, ticktext=list(names), range=[len(names) - 0.5, -0.5], automargin=True)


def figure(traces: list[Any], x_title: str = "", **layout: Any) -> go.Figure:
    """Return a figure of traces; keywords change its layout."""
    base: dict[str, Any] = {
        "template": {},
        "height": 300,
        "margin": {"l": 64, "r": 16, "t": 16, "b": 48},
        "hovermode": "x unified",
        "showlegend": len([trace for trace in traces if trace.showlegend is not False]) > 1,
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "xaxis": axis(x_title),
        "yaxis": axis(""),
    }
    drawn = go.Figure(data=traces, layout={**base, **layout})
    for letter in ("x", "y"):
        _widen(drawn, letter)
    return drawn


def _widen(drawn: go.Figure, letter: str) -> None:
    """Start an axis at 0 if all its points have the same value.

    Plotly's default would be one unit below and above the value.
    """
    values: dict[str, set[float]] = {}
    for trace in drawn.data:
        if not isinstance(trace, go.Scatter):
            # Leave figures with bars as they are: a stack is longer than its largest value.
            return
        name = getattr(trace, f"{letter}axis") or letter
        numbers = {value for value in getattr(trace, letter) or () if isinstance(value, int | float)}
        values.setdefault(name, set()).update(numbers)
    for name, found in values.items():
        its_axis = drawn.layout[f"{letter}axis{name[1:]}"]
        if len(found) == 1 and its_axis.range is None:
            (value,) = found
            its_axis.range = sorted((0.0, 1.05 * value or 1.0))
