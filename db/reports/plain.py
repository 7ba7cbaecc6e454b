"""Tables and aligned values for a terminal."""

from collections.abc import Sequence

from db.reports.tables import Column, Table

MAX_CHARACTERS = 44
"""Limit of a cell; ids are shorter, names may be cut."""


def to_plain(table: Table) -> str:
    """Return a table as aligned columns with heads in capitals and notes below; long cells are cut."""
    heads = [column.title.upper() for column in table.columns]
    rows = [[_cut(cell) for cell in row] for row in table.rows]
    widths = [max(len(cell) for cell in cells) for cells in zip(heads, *rows, strict=True)]
    lines = [_line(cells, widths, table.columns) for cells in (heads, *rows)]
    return "\n".join([*lines, *table.notes]) + "\n"


def facts(pairs: Sequence[tuple[str, str]]) -> str:
    """Return lines of names and values, with aligned values.

    >>> print(facts([("em", "81.28"), ("status", "finished")]), end="")
      em      81.28
      status  finished
    """
    width = max((len(name) for name, _ in pairs), default=0)
    return "".join(f"  {name:<{width}}  {value}\n" for name, value in pairs)


def _line(cells: Sequence[str], widths: Sequence[int], columns: Sequence[Column]) -> str:
    parts = [
        cell.rjust(width) if column.is_number else cell.ljust(width)
        for cell, width, column in zip(cells, widths, columns, strict=True)
    ]
    return "  ".join(parts).rstrip()


def _cut(cell: str) -> str:
    return cell if len(cell) <= MAX_CHARACTERS else cell[: MAX_CHARACTERS - 1] + "…"
