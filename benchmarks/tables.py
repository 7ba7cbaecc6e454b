"""Print the tables of benchmarks/README.md from benchmarks/results/*.json."""

import json
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

RESULTS = Path(__file__).parent / "results"
_HEAD = "| variant | GPUs | global batch | features/s, median (least to most) | peak GiB a GPU |\n|---|---|---|---|---|"


def table(measurements: list[dict[str, Any]]) -> str:
    """Return a table in Markdown, fastest first within a batch and a number of GPUs."""
    rows = sorted(
        measurements,
        key=lambda each: (each["world_size"], each["global_batch_size"], -median(each["features_per_s"])),
    )
    lines = [
        f"| `{each['variant']}` | {each['world_size']} | {each['global_batch_size']} "
        f"| {median(each['features_per_s']):,.0f} ({min(each['features_per_s']):,.0f} to "
        f"{max(each['features_per_s']):,.0f}) | {each['peak_memory_bytes'] / 2**30:.1f} |"
        for each in rows
    ]
    return "\n".join([_HEAD, *lines])


def main() -> None:
    """Print one table for each card, date and command."""
    runs: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for path in sorted(RESULTS.glob("*.json")):
        for each in json.loads(path.read_text(encoding="utf-8")):
            if "features_per_s" in each:
                runs[each["date"], each["card"], each["torch"], each["command"]].append(each)
    for (date, card, torch, command), measurements in runs.items():
        print(f"{date}, {card}, torch {torch}: `{command}`\n\n{table(measurements)}\n")


if __name__ == "__main__":
    main()
