"""Print the tables of benchmarks/results/*.json, or write them into benchmarks/README.md.

python -m benchmarks.tables.update_readme [--write]
"""

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.tables.faults import chaos_table, journal_kills_table, logging_cost_table, recovery_table
from benchmarks.tables.steps import ceilings_table, parts_table
from benchmarks.tables.training import (
    equality_table,
    evaluation_table,
    memory_table,
    quality_table,
    recipe_table,
    resizes_table,
    stalls_table,
    training_table,
)

FOLDER = Path(__file__).parents[1]
BEGIN = "<!-- tables: python -m benchmarks.tables.update_readme --write -->"
END = "<!-- end of tables -->"
NO_RESULTS = "No results yet: the commands above make them."

Row = dict[str, Any]
TITLES: dict[str, tuple[str, Callable[[list[Row]], str]]] = {
    "training": ("Training", training_table),
    "equality": ("The same losses", equality_table),
    "parts": ("Parts of a training step", parts_table),
    "ceiling": ("Limits of the GPU", ceilings_table),
    "evaluation": ("Evaluation", evaluation_table),
    "memory": ("Memory", memory_table),
    "stall": ("Saves during training", stalls_table),
    "resize": ("Checkpoints at another world size and strategy", resizes_table),
    "recipe": ("The whole recipe", recipe_table),
    "quality": ("Quality", quality_table),
    "chaos": ("Runs under faults", chaos_table),
    "recovery": ("From a kill to the next step", recovery_table),
    "journal_kills": ("Journal under SIGKILL", journal_kills_table),
    "logging_cost": ("Cost of recording a step", logging_cost_table),
}

SIDE_BY_SIDE = ("parts", "stall", "chaos")
"""Kinds whose script measures one case per call: the calls of a day share a table."""


def kind_of(row: Row) -> str | None:
    """Return the kind of table that a measurement belongs to, or None if it has no table here."""
    if "steps_a_repeat" in row:
        return "training"
    what = row.get("what") or row.get("measurement", "")
    return next((kind for kind in TITLES if kind == what or what.startswith(f"{kind}_")), None)


def tables(paths: Iterable[Path]) -> str:
    """Return all tables in Markdown: by kind, then by date, machine and command."""
    found: dict[str, dict[tuple[str, ...], dict[str, list[Row]]]] = {kind: {} for kind in TITLES}
    for path in sorted(paths):
        for row in json.loads(path.read_text(encoding="utf-8")):
            if (kind := kind_of(row)) is not None:
                where = f"{row['card']}, torch {row['torch']}" if "card" in row else row["cpu"]
                apart = "" if kind in SIDE_BY_SIDE else row["command"]
                commands = found[kind].setdefault((row["date"], where, apart), {})
                commands.setdefault(row["command"], []).append(row)
    parts = []
    for kind, (title, table) in TITLES.items():
        for (date, where, _), by_command in found[kind].items():
            rows = [row for group in by_command.values() for row in group]
            listed = "\n".join(f"- `{command}`" for command in by_command)
            if len(by_command) == 1:
                parts.append(f"### {title}\n\n{date}, {where}: `{rows[0]['command']}`\n\n{table(rows)}")
            else:
                parts.append(f"### {title}\n\n{date}, {where}:\n\n{listed}\n\n{table(rows)}")
    return "\n\n".join(parts) or NO_RESULTS


def between_marks(text: str) -> tuple[str, str, str]:
    """Return the text before the tables of a README, the tables, and the text after them."""
    before, begin, rest = text.partition(BEGIN)
    inside, end, after = rest.partition(END)
    assert begin, f"the README has no line {BEGIN}"
    assert end, f"the README has no line {END}"
    return before + begin, inside.strip(), end + after


def main() -> None:
    """Print the tables, or write them into the README."""
    options = argparse.ArgumentParser(description="Tables of benchmarks/results/*.json in Markdown.")
    options.add_argument("--write", action="store_true", help="into benchmarks/README.md")
    given = options.parse_args()
    made = tables((FOLDER / "results").glob("*.json"))
    if not given.write:
        print(made)
        return
    readme = FOLDER / "README.md"
    before, _, after = between_marks(readme.read_text(encoding="utf-8"))
    readme.write_text(f"{before}\n\n{made}\n\n{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
