"""A report as Markdown with pipe tables (GitHub's)."""

import re
from collections.abc import Sequence

from db.reports.cells import moment
from db.reports.tables import Table

# Everything that can start markup or HTML in a cell; a backslash makes punctuation literal.
_SPECIAL = re.compile(r"[\\`*_{}\[\]()<>#!|~&$@]|:(?=//)|(?<=www)\.")


def to_markdown(title: str, made_at: float, tables: Sequence[Table]) -> str:
    """Return the text of a document of tables, without empty ones; ``made_at`` is a Unix time in seconds."""
    parts = [f"# {escaped(title)}", f"Made {moment(made_at)} UTC."]
    parts += [_table(table) for table in tables if table.rows]
    return "\n\n".join(parts) + "\n"


def _table(table: Table) -> str:
    lines = [f"## {table.title}", ""]
    lines.append("| " + " | ".join(column.title for column in table.columns) + " |")
    lines.append("|" + "|".join("---:" if column.is_number else "---" for column in table.columns) + "|")
    lines += ["| " + " | ".join(escaped(cell) for cell in row) + " |" for row in table.rows]
    if table.notes:
        lines += ["", *(f"- {escaped(note)}" for note in table.notes)]
    return "\n".join(lines)


def escaped(text: str) -> str:
    r"""Return text escaped for Markdown.

    >>> print(escaped("a|b <img> [x](y)"))
    a\|b \<img\> \[x\]\(y\)
    """
    return _SPECIAL.sub(lambda match: "\\" + match[0], text)
