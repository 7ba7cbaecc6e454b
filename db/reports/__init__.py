"""Reports of runs as Markdown, LaTeX and self-contained HTML, and tables for the terminal."""

from db.reports.gather import Report, gather
from db.reports.html import to_html
from db.reports.latex import to_latex
from db.reports.markdown import to_markdown
from db.reports.study import study_table

FORMATS = {"markdown": to_markdown, "latex": to_latex}
"""Functions that write tables as a document."""

__all__ = ["FORMATS", "Report", "gather", "study_table", "to_html", "to_latex", "to_markdown"]
