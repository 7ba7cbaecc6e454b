"""Print the tables of benchmarks/README.md from benchmarks/results/*.json, or write them into it.

python -m benchmarks.tables.tables [--write]
"""

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.tables.fault_rows import chaos, journal_kills, logging_cost, recovery
from benchmarks.tables.step_rows import ceilings, parts
from benchmarks.tables.table_rows import equality, evaluation, memory, quality, recipe, resizes, stalls, training

FOLDER = Path(__file__).parents[1]
BEGIN = "<!-- tables: python -m benchmarks.tables.tables --write -->"
END = "<!-- end of tables -->"
NO_RESULTS = "No results yet: the commands above make them."

Row = dict[str, Any]
TITLES: dict[str, tuple[str, Callable[[list[Row]], str]]] = {
    "training": ("Training", training),
    "equality": ("The same losses", equality),
    "parts": ("Where a step goes", parts),
    "ceiling": ("Ceilings", ceilings),
    "evaluation": ("Evaluation", evaluation),
    "memory": ("Memory", memory),
    "stall": ("Saving beside the steps", stalls),
    "resize": ("Checkpoints at another world size and strategy", resizes),
    "recipe": ("The whole recipe", recipe),
    "quality": ("Quality", quality),
    "chaos": ("Runs under faults", chaos),
    "recovery": ("From a kill to the next step", recovery),
    "journal_kills": ("Killed while it journals", journal_kills),
    "logging_cost": ("What noting a step costs", logging_cost),
}


ONE_AT_A_TIME = ("parts", "stall", "chaos")


def kind_of(row: Row) -> str | None:
    """Return which table a measurement belongs to; None for those of other scripts."""
    if "steps_a_repeat" in row:
        return "training"
    what = row.get("what") or row.get("measurement", "")
    return next((kind for kind in TITLES if kind == what or what.startswith(f"{kind}_")), None)


def tables(paths: Iterable[Path]) -> str:
    """Return all tables in Markdown: by kind, then by where, when and how they were measured."""
    found: dict[str, dict[tuple[str, ...], dict[str, list[Row]]]] = {kind: {} for kind in TITLES}
    for path in sorted(paths):
        for row in json.loads(path.read_text(encoding="utf-8")):
            if (kind := kind_of(row)) is not None:
                where = f"{row['card']}, torch {row['torch']}" if "card" in row else row["cpu"]
                # What a script measures one at a time stands side by side.
                apart = "" if kind in ONE_AT_A_TIME else row["command"]
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
    """Return what stands before the tables of a README, the tables, and what follows them."""
    before, begin, rest = text.partition(BEGIN)
    inside, end, after = rest.partition(END)
    assert begin, "the README has no mark where its tables begin"
    assert end, "the README has no mark where its tables end"
    return before + begin, inside.strip(), end + after


def main() -> None:
    """Print the tables, or write them between the marks of the README."""
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
