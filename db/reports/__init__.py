"""Reports of runs as Markdown, LaTeX and self-contained HTML; pure functions from rows of `db.queries`."""

from db.reports.gather import Report, gather
from db.reports.html import to_html
from db.reports.latex import to_latex
from db.reports.markdown import to_markdown

__all__ = ["Report", "gather", "to_html", "to_latex", "to_markdown"]
