"""Markdown tables of injected faults, recoveries, and the cost of recording: one function per script."""

from collections import defaultdict
from statistics import median
from typing import Any

from benchmarks.tables.training import markdown_table

Row = dict[str, Any]


def chaos_table(rows: list[Row]) -> str:
    """Return, for each kind of fault, how often it was injected, failures, and seconds to the next step."""
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
    head = ("fault", "times", "in failed schedules", "recoveries", "seconds to the next step, median (max)")
    return f"{len(rows)} schedules, {failed} failed.\n\n{markdown_table(head, lines)}"


def recovery_table(rows: list[Row]) -> str:
    """Return seconds from a SIGKILL to the next step, and the share of useful work."""
    head = ("kills", "seconds to the next step", "useful work at one kill per minute", "computed for one in 10 minutes")
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


def journal_kills_table(rows: list[Row]) -> str:
    """Return the lines that a journal lost."""
    return markdown_table(
        ("kills", "acknowledged lines", "lost", "torn last lines"),
        [
            (f"{row['kills']:,}", f"{row['acknowledged_lines']:,}", str(row["lost_lines"]), str(row["torn_last_lines"]))
            for row in rows
        ],
    )


def logging_cost_table(rows: list[Row]) -> str:
    """Return the time that recording a step takes on the training thread."""
    return markdown_table(
        ("recorded to", "p50, us", "p99, us"),
        [
            (row["measurement"].removeprefix("logging_cost_"), f"{row['p50_us']:.1f}", f"{row['p99_us']:.0f}")
            for row in rows
        ],
    )
