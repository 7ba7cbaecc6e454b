"""Charts as inline SVG, without scripts, fonts or other files."""

from collections.abc import Sequence
from html import escape
from math import floor, log10

from db.queries import statistics
from db.reports.cells import significant

Points = Sequence[tuple[float, float]]

WIDTH = 960.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 340.0, 24.0, 12.0, 44.0
_ROW = 26.0
_MAX_LABEL_CHARACTERS = 48


def strip_chart(strips: Sequence[tuple[str, Sequence[float]]], title: str, unit: str) -> str:
    """Return a chart with one row per group: values as dots, the median as a bar; the axis starts at 0.

    Args:
        strips: label and values of each group: at least one, each with at least one value of 0 or more.
        title: also the text for screen readers.
        unit: title of the x axis.
    """
    ticks = _ticks(0.0, max(max(values) for _, values in strips))
    scale = (WIDTH - _LEFT - _RIGHT) / ticks[-1]
    height = _TOP + _ROW * len(strips) + _BOTTOM
    parts = [_vertical_grid([(tick, _LEFT + tick * scale) for tick in ticks], height, unit)]
    for index, (label, values) in enumerate(strips):
        y = _TOP + _ROW * (index + 0.5)
        middle = _LEFT + statistics.median(values) * scale
        parts.append(f'<text x="{_LEFT - 10:g}" y="{y + 4:.1f}" text-anchor="end">{_label(label)}</text>')
        parts.append(f'<path class="median" d="M{middle:.1f} {y - 9:.1f}v18"/>')
        parts += [f'<circle class="dot" cx="{_LEFT + value * scale:.1f}" cy="{y:.1f}" r="4"/>' for value in values]
    return _svg(title, height, parts)


def line_chart(lines: Sequence[tuple[str, Points]], title: str, units: tuple[str, str]) -> str:
    """Return a line chart with a legend.

    Args:
        lines: label and (x, y) of each line: at least one, each with at least two points.
        title: also the text for screen readers.
        units: titles of the x and the y axis.
    """
    xs = [x for _, points in lines for x, _ in points]
    ys = [y for _, points in lines for _, y in points]
    x_ticks, y_ticks = _ticks(0.0, max(xs)), _ticks(min(0.0, *ys), max(ys))
    height = 340.0
    x_scale = (WIDTH - _LEFT - _RIGHT) / x_ticks[-1]
    y_scale = (height - _TOP - _BOTTOM) / (y_ticks[-1] - y_ticks[0])
    bottom = height - _BOTTOM
    parts = [_vertical_grid([(tick, _LEFT + tick * x_scale) for tick in x_ticks], height, units[0])]
    for tick in y_ticks:
        y = bottom - (tick - y_ticks[0]) * y_scale
        parts.append(f'<path class="grid" d="M{_LEFT:g} {y:.1f}H{WIDTH - _RIGHT:g}"/>')
        parts.append(f'<text x="{_LEFT - 8:g}" y="{y + 4:.1f}" text-anchor="end">{significant(tick, 3)}</text>')
    parts.append(f'<text x="{_LEFT - 52:g}" y="{bottom / 2:.1f}" text-anchor="end">{_label(units[1])}</text>')
    for index, (label, points) in enumerate(lines):
        path = " ".join(f"{_LEFT + x * x_scale:.1f},{bottom - (y - y_ticks[0]) * y_scale:.1f}" for x, y in points)
        key_y = _TOP + 18 * index + 8
        parts.append(f'<polyline class="line s{index % 6}" points="{path}"/>')
        parts.append(f'<path class="line s{index % 6}" d="M0 {key_y:g}h18"/>')
        parts.append(f'<text x="24" y="{key_y + 4:g}">{_label(label, 32)}</text>')
    return _svg(title, height, parts)


def _svg(title: str, height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH:g} {height:g}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )


def _vertical_grid(ticks: Sequence[tuple[float, float]], height: float, unit: str) -> str:
    bottom = height - _BOTTOM
    lines = "".join(f'<path class="grid" d="M{x:.1f} {_TOP:g}V{bottom:g}"/>' for _, x in ticks)
    labels = "".join(
        f'<text x="{x:.1f}" y="{bottom + 17:g}" text-anchor="middle">{significant(tick)}</text>' for tick, x in ticks
    )
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    return f'{lines}{labels}<text x="{middle:g}" y="{height - 6:g}" text-anchor="middle">{_label(unit)}</text>'


def _label(text: str, most: int = _MAX_LABEL_CHARACTERS) -> str:
    return escape(text if len(text) <= most else text[: most - 1] + "…")


def _ticks(low: float, high: float) -> list[float]:
    """Return four to ten round values from at most `low` to at least `high`.

    >>> _ticks(0.0, 779.3)
    [0.0, 200.0, 400.0, 600.0, 800.0]
    """
    spread = high - low or 1.0
    power = 10.0 ** floor(log10(spread / 4))
    step = next(power * factor for factor in (10, 5, 2, 1) if power * factor <= spread / 3 or factor == 1)
    first = floor(low / step)
    ticks = [first * step]
    while ticks[-1] < high or len(ticks) < 2:
        ticks.append((first + len(ticks)) * step)
    return ticks
