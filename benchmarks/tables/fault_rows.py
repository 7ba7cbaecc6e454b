"""Tables in Markdown of what was inflicted and what it cost, one function a script; see `table_rows` for the others."""

from collections import defaultdict
from statistics import median
from typing import Any

from benchmarks.tables.table_rows import markdown_table

Row = dict[str, Any]


def chaos(rows: list[Row]) -> str:
    """Return by fault how often it was inflicted, what failed, and the seconds to the next step."""
    counts: dict[str, int] = defaultdict(int)
    failures: dict[str, int] = defaultdict(int)
    recoveries: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        for event in row["schedule"]["events"]:
            counts[event["kind"]] += 1
            failures[event["kind"]] += row["failure"] is not None
        for kind, seconds in row.get("recovery_s", []):
            recoveries[kind].append(seconds)
    lines = []
    for kind, count in sorted(counts.items()):
        seconds = recoveries[kind]
        shown = f"{median(seconds):.1f} ({max(seconds):.1f})" if seconds else "-"
        lines.append((f"`{kind}`", str(count), str(failures[kind]), str(len(seconds)), shown))
    failed = sum(row["failure"] is not None for row in rows)
    head = ("fault", "times", "in schedules that failed", "recoveries", "seconds to the next step, median (most)")
    return f"{len(rows)} schedules, {failed} failed.\n\n{markdown_table(head, lines)}"


def recovery(rows: list[Row]) -> str:
    """Return seconds from a SIGKILL to the next step, and shares of useful work."""
    head = ("kills", "seconds to the next step", "useful work, a kill a minute", "computed for one in ten minutes")
    lines = []
    for row in rows:
        found = row["recovery_s"]
        lines.append(
            (
                str(len(found)),
                f"{median(found):.1f} ({min(found):.1f} to {max(found):.1f})",
                f"{row['a_kill_a_minute']['useful_share']:.1%}",
                f"{row['computed_useful_share_at_one_kill_in_ten_minutes']:.1%}",
            )
        )
    return markdown_table(head, lines)


def journal_kills(rows: list[Row]) -> str:
    """Return what a journal has lost."""
    return markdown_table(
        ("kills", "acknowledged lines", "of them lost", "torn last lines"),
        [
            (f"{row['kills']:,}", f"{row['acknowledged_lines']:,}", str(row["lost_lines"]), str(row["torn_last_lines"]))
            for row in rows
        ],
    )


def logging_cost(rows: list[Row]) -> str:
    """Return what noting a step costs the training thread."""
    return markdown_table(
        ("what is noted", "p50, us", "p99, us"),
        [
            (row["measurement"].removeprefix("logging_cost_"), f"{row['p50_us']:.1f}", f"{row['p99_us']:.0f}")
            for row in rows
        ],
    )
