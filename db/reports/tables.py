"""Tables of a report as text, independent of the output format."""

from collections.abc import Sequence
from dataclasses import dataclass

from db.queries import Comparison, Group, RunRow, distinguishing_settings, statistics
from db.queries.statistics import LEAST_FOR_MEDIAN_INTERVAL
from db.reports.cells import UNKNOWN, interval, moment, number, significant, text


@dataclass(frozen=True)
class Column:
    """A column and its head."""

    title: str
    is_number: bool = False


@dataclass(frozen=True)
class Table:
    """A table; cells are one line of any characters, notes follow below."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


_RUN_COLUMNS = (
    Column("Run"),
    Column("Name"),
    Column("Started (UTC)"),
    Column("Status"),
    Column("Provenance"),
    Column("Recipe"),
    Column("Strategy"),
    Column("Devices"),
    Column("Global batch", is_number=True),
    Column("EM (%)", is_number=True),
    Column("F1 (%)", is_number=True),
    Column("Loss", is_number=True),
    Column("Wall clock (s)", is_number=True),
    Column("Features/s", is_number=True),
)
_SPEEDUP_COLUMNS = (
    Column("Group"),
    Column("Configuration"),
    Column("Devices"),
    Column("Runs (n)", is_number=True),
    Column("Wall clock, median (s)", is_number=True),
    Column("Reference"),
    Column("Ratio", is_number=True),
    Column("95% interval"),
    Column("Kind of ratio"),
    Column("p", is_number=True),
    Column("Efficiency", is_number=True),
    Column("Quartiles (s)"),
    Column("95% of the median (s)"),
    Column("Features/s, median", is_number=True),
    Column("Provenance"),
)


def runs_table(rows: Sequence[RunRow], num_matching: int) -> Table:
    """Return one row per run.

    Args:
        rows: runs in the order of the table.
        num_matching: number of all runs; `rows` are the first of them.
    """
    notes = [] if num_matching == len(rows) else [f"{len(rows):,} of {num_matching:,} runs."]
    return Table("Runs", _RUN_COLUMNS, tuple(_run_cells(row) for row in rows), tuple(notes))


def speedup_table(comparisons: Sequence[Comparison]) -> Table:
    """Return one row per group of repeats; references are named by the number of their row."""
    names, configurations = group_names(comparisons), group_configurations(comparisons)
    rows = tuple(_group_cells(comparison, names, configurations) for comparison in comparisons)
    notes = [
        "speedup: median wall clock of the reference over that of the group, at equal work; throughput ratio: "
        "features per second of the group over those of the reference, if the work is not equal or a wall clock "
        "is missing. Its 95% interval is a bootstrap interval; p is the two-sided Mann-Whitney test.",
    ]
    if any(len(comparison.group.repeats) < LEAST_FOR_MEDIAN_INTERVAL for comparison in comparisons):
        notes.append(
            f"With n < {LEAST_FOR_MEDIAN_INTERVAL} a distribution-free 95% interval of the median does not exist."
        )
    return Table("Wall clock and speedup", _SPEEDUP_COLUMNS, rows, tuple(notes + difference_notes(comparisons, names)))


def group_names(comparisons: Sequence[Comparison]) -> dict[str, str]:
    """Return a short name for each group and reference, by key, groups first."""
    keys = [comparison.group.key for comparison in comparisons]
    keys += [item.reference.key for item in comparisons if item.reference is not None]
    return {key: f"G{number_}" for number_, key in enumerate(dict.fromkeys(keys), start=1)}


def group_configurations(comparisons: Sequence[Comparison]) -> dict[str, str]:
    """Return a short configuration of each group, by key, with the settings that distinguish equal ones."""
    groups = [comparison.group for comparison in comparisons]
    settings = distinguishing_settings(
        groups,
        lambda group: (
            _configuration(group),
            group.setting.provenance,
            group.setting.world_size,
            group.setting.num_nodes,
            group.setting.device_name,
        ),
    )
    return {group.key: ", ".join((_configuration(group), *map(text, settings[group.key]))) for group in groups}


def _configuration(group: Group) -> str:
    setting = group.setting
    words = [setting.recipe or setting.model, setting.parallel, setting.precision]
    batch = None if setting.global_batch_size is None else f"batch {setting.global_batch_size:,}"
    return ", ".join(text(word) for word in (*words, batch) if word) or UNKNOWN


def devices(world_size: int | None, num_nodes: int | None, device_name: str | None) -> str:
    """Return the number and name of devices.

    >>> devices(4, 2, "NVIDIA A100"), devices(1, 1, None)
    ('4 x NVIDIA A100 on 2 nodes', '1 x unknown device')
    """
    if world_size is None and device_name is None:
        return UNKNOWN
    count = "" if world_size is None else f"{world_size} x "
    nodes = f" on {num_nodes} nodes" if num_nodes is not None and num_nodes > 1 else ""
    return f"{count}{text(device_name or 'unknown device')}{nodes}"


def _run_cells(row: RunRow) -> tuple[str, ...]:
    return (
        text(row.run_id),
        text(row.name),
        moment(row.created_at),
        text(row.status),
        text(row.provenance),
        text(row.recipe),
        text(row.parallel),
        devices(row.world_size, row.num_nodes, row.device_name),
        number(row.global_batch_size, 0),
        number(row.em),
        number(row.f1),
        number(row.final_loss, 4),
        number(row.wall_clock_s, 1),
        significant(row.samples_per_s),
    )


def _group_cells(comparison: Comparison, names: dict[str, str], configurations: dict[str, str]) -> tuple[str, ...]:
    group, reference = comparison.group, comparison.reference
    setting, walls, rates = group.setting, group.values_of("wall_clock_s"), group.values_of("samples_per_s")
    of_median = statistics.median_interval(walls) if walls else None
    name = group.repeats[0].name if len(group.repeats) == 1 else None
    return (
        names[group.key],
        configurations[group.key] + (f" ({text(name)})" if name else ""),
        devices(setting.world_size, setting.num_nodes, setting.device_name),
        group.as_reported or str(len(group.repeats)),
        number(statistics.median(walls), 1) if walls else UNKNOWN,
        UNKNOWN if reference is None else names[reference.key],
        *ratio_cells(comparison),
        interval(*statistics.quartiles(walls), 1) if len(walls) > 1 else UNKNOWN,
        interval(of_median.low, of_median.high, 1) if of_median else UNKNOWN,
        significant(statistics.median(rates)) if rates else UNKNOWN,
        text(setting.provenance),
    )


def ratio_cells(comparison: Comparison) -> tuple[str, str, str, str, str]:
    """Return the cells of ratio, interval, kind of ratio, p and efficiency."""
    ratio = comparison.ratio
    if ratio is None:
        is_reference = comparison.reference is not None and comparison.reference.key == comparison.group.key
        why = comparison.unequal_work and f"none: {comparison.unequal_work}, not equal work"
        return UNKNOWN, UNKNOWN, "reference" if is_reference else why or UNKNOWN, UNKNOWN, UNKNOWN
    kind = ratio.kind.replace("_", " ")
    return (
        number(ratio.value),
        interval(ratio.interval.low, ratio.interval.high) if ratio.interval else UNKNOWN,
        kind if ratio.scaling is None else f"{kind}, {ratio.scaling} scaling",
        significant(ratio.test.p_value, 2) if ratio.test else UNKNOWN,
        number(ratio.parallel_efficiency),
    )


def difference_notes(comparisons: Sequence[Comparison], names: dict[str, str]) -> list[str]:
    """Return a note for each group that differs from its reference in more than devices and strategy."""
    return [
        f"{names[comparison.group.key]} against {names[comparison.reference.key]} also differs in "
        + "; ".join(f"{text(d.what)}: {text(d.reference)} -> {text(d.here)}" for d in comparison.differences)
        + "."
        for comparison in comparisons
        if comparison.reference is not None and comparison.differences
    ]
