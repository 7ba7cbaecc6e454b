"""Tables and aligned values for a terminal."""

from collections.abc import Sequence

from db.reports.tables import Table

MAX_CHARACTERS = 44
"""Limit of a cell; ids are shorter, names may be cut."""


def to_plain(table: Table) -> str:
    """Return a table as aligned columns with heads in capitals and notes below; long cells are cut."""
    lines = [""] * (len(table.rows) + 1)
    for index, column in enumerate(table.columns):
        cells = [column.title.upper(), *(_cut(row[index]) for row in table.rows)]
        width = max(map(len, cells))
        aligned = [cell.rjust(width) if column.is_number else cell.ljust(width) for cell in cells]
        lines = [f"{line}  {cell}" if index else cell for line, cell in zip(lines, aligned, strict=True)]
    return "\n".join([*(line.rstrip() for line in lines), *table.notes]) + "\n"


def facts(pairs: Sequence[tuple[str, str]]) -> str:
    """Return lines of names and values, with aligned values.

    >>> print(facts([("em", "81.28"), ("status", "finished")]), end="")
      em      81.28
      status  finished
    """
    width = max((len(name) for name, _ in pairs), default=0)
    return "".join(f"  {name:<{width}}  {value}\n" for name, value in pairs)


def _cut(cell: str) -> str:
    return cell if len(cell) <= MAX_CHARACTERS else cell[: MAX_CHARACTERS - 1] + "…"
