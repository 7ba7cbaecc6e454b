"""A report as one self-contained HTML page with styles and charts, without scripts."""

from html import escape

from db.reports.cells import moment, text
from db.reports.charts import line_chart, strip_chart
from db.reports.gather import Report
from db.reports.tables import Table, devices, group_configurations, group_names

_STYLE = """
:root{color-scheme:light dark;--ink:#1c2330;--soft:#5d6778;--line:#dde2ea;--ground:#fff;--accent:#1f6feb;--mark:#c2410c}
@media (prefers-color-scheme:dark){:root{--ink:#e4e8ef;--soft:#9aa5b5;--line:#2f3744;--ground:#12161d;
--accent:#6ea8fe;--mark:#fb923c}}
body{margin:2rem auto;padding:0 1.5rem;max-width:90rem;background:var(--ground);color:var(--ink);
font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.6rem;margin-bottom:.2rem}h2{font-size:1.15rem;margin-top:2.2rem}
p,li{color:var(--soft)}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.86rem;font-variant-numeric:tabular-nums}
th,td{padding:.35rem .7rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top;white-space:nowrap}
td.long{white-space:normal;min-width:16rem;max-width:24rem;overflow-wrap:anywhere}
th{color:var(--soft);font-weight:600;white-space:nowrap}
.number{text-align:right}
svg{width:100%;max-width:60rem;height:auto;font-size:12px;fill:var(--ink)}
.grid{stroke:var(--line);fill:none}.dot{fill:var(--accent);fill-opacity:.65}
.median{stroke:var(--mark);stroke-width:3;fill:none}.line{fill:none;stroke-width:1.8}
.s0{stroke:#1f77b4}.s1{stroke:#d95f02}.s2{stroke:#1b9e77}.s3{stroke:#a35cc7}.s4{stroke:#c49a00}.s5{stroke:#e7298a}
@media print{body{margin:0;max-width:none}}
"""
LONGEST_UNBROKEN = 32
"""Cells of at most this many characters stay on one line."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def to_html(report: Report) -> str:
    """Return the page of a report."""
    speedups, runs = report.tables
    body = [_wall_clocks(report), _table(speedups), _losses(report), _table(runs)]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Training runs</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>Training runs</h1>\n"
        f"<p>Made {moment(report.made_at)} UTC.</p>\n{''.join(body)}</body>\n</html>\n"
    )


def _wall_clocks(report: Report) -> str:
    """Return one chart per recipe, because wall clocks of different work are not comparable."""
    names, configurations = group_names(report.comparisons), group_configurations(report.comparisons)
    strips: dict[str | None, list[tuple[str, list[float]]]] = {}
    for comparison in report.comparisons:
        group = comparison.group
        label = f"{names[group.key]} {configurations[group.key]}, {devices(group.setting)}"
        strips.setdefault(group.setting.recipe, []).append((label, group.values_of("wall_clock_s")))
    return "".join(
        f"<h2>Wall clock of every run{'' if recipe is None else f', {escape(text(recipe))}'}</h2>\n"
        + strip_chart(rows, "Wall clock of every run by group, medians marked", "wall clock (s)")
        + "\n"
        for recipe, rows in strips.items()
    )


def _losses(report: Report) -> str:
    if not report.curves:
        return ""
    return f"<h2>Training loss</h2>\n{line_chart(report.curves, 'Training loss by step', ('step', 'loss'))}\n"


def _table(table: Table) -> str:
    if not table.rows:
        return ""
    heads = "".join(f'<th scope="col"{_kind(column.is_number)}>{escape(column.title)}</th>' for column in table.columns)
    rows = "\n".join(
        "<tr>"
        + "".join(
            f"<td{_kind(column.is_number, cell)}>{escape(cell)}</td>"
            for column, cell in zip(table.columns, row, strict=True)
        )
        + "</tr>"
        for row in table.rows
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in table.notes)
    return (
        f'<h2>{escape(table.title)}</h2>\n<div class="wide"><table>\n<thead><tr>{heads}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody>\n</table></div>\n" + (f"<ul>{notes}</ul>\n" if notes else "")
    )


def _kind(is_number: bool, cell: str = "") -> str:
    if is_number:
        return ' class="number"'
    return ' class="long"' if len(cell) > LONGEST_UNBROKEN else ""
