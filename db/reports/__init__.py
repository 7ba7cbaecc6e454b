"""Reports of runs as Markdown, LaTeX and self-contained HTML, and tables for the terminal."""

from db.reports.gather import Report, gather
from db.reports.html import to_html
from db.reports.latex import latex_document, to_latex
from db.reports.markdown import markdown_document, to_markdown
from db.reports.study import study_table

__all__ = [
    "Report",
    "gather",
    "latex_document",
    "markdown_document",
    "study_table",
    "to_html",
    "to_latex",
    "to_markdown",
]
