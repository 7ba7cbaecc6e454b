"""Table of a scaling study: configuration, size, time, speedup with interval, efficiency and cost."""

from collections.abc import Sequence

from db.queries import Comparison, Group, compare, statistics
from db.queries.statistics import LEAST_FOR_MEDIAN_INTERVAL
from db.reports.cells import UNKNOWN, interval, number, significant, text
from db.reports.tables import Column, Table, difference_notes, group_configurations, ratio_cells


def study_table(groups: Sequence[Group], notes: Sequence[str] = ()) -> Table:
    """Return one row per group of a study, compared with its run of one process without a strategy.

    Args:
        groups: of the study, in any order.
        notes: added below the table.
    """
    ordered = sorted(groups, key=_place)
    reference = next((group for group in ordered if _is_reference(group)), None)
    comparisons = [compare(group, reference) for group in ordered]
    configurations = group_configurations(comparisons)
    unit = _unit(ordered)
    columns = (
        Column("Configuration"),
        Column("Nodes x processes"),
        Column("Runs (n)", is_number=True),
        Column("Wall clock, median (s)", is_number=True),
        Column("Ratio", is_number=True),
        Column("95% interval"),
        Column("Kind of ratio"),
        Column("p", is_number=True),
        Column("Efficiency", is_number=True),
        Column(f"{unit} a run", is_number=True),
    )
    rows = tuple(_cells(comparison, configurations[comparison.group.key]) for comparison in comparisons)
    names = {group.key: f"{configurations[group.key]} at {_size(group)}" for group in ordered}
    said = [*_remarks(ordered, reference, names), *difference_notes(comparisons, names), *notes]
    return Table("Wall clock, speedup and cost", columns, rows, tuple(said))


def _place(group: Group) -> tuple[bool, str, int, int, int]:
    setting = group.setting
    size = (setting.world_size or 0, setting.num_nodes or 0, setting.global_batch_size or 0)
    return (not _is_reference(group), setting.parallel or "", *size)


def _is_reference(group: Group) -> bool:
    return group.setting.parallel == "none" and group.setting.world_size == 1


def _unit(groups: Sequence[Group]) -> str:
    kinds = {group.setting.device_type for group in groups}
    return {frozenset({"cuda"}): "GPU-hours", frozenset({"cpu"}): "Process-hours"}.get(
        frozenset(kind or "" for kind in kinds), "Device-hours"
    )


def _size(group: Group) -> str:
    setting = group.setting
    if setting.num_nodes is None or setting.world_size is None:
        return UNKNOWN
    return f"{setting.num_nodes} x {significant(setting.world_size / setting.num_nodes)}"


def _cells(comparison: Comparison, configuration: str) -> tuple[str, ...]:
    group = comparison.group
    wall_clock_s = statistics.median(group.values_of("wall_clock_s"))
    world_size = group.setting.world_size
    return (
        configuration,
        _size(group),
        str(len(group.repeats)),
        number(wall_clock_s, 1),
        *ratio_cells(comparison),
        UNKNOWN if world_size is None else significant(wall_clock_s * world_size / 3600, 3),
    )


def _remarks(groups: Sequence[Group], reference: Group | None, names: dict[str, str]) -> list[str]:
    remarks = ["No run of one process is finished yet, so there is no reference."]
    if reference is not None:
        walls = reference.values_of("wall_clock_s")
        spread = f", quartiles {interval(*statistics.quartiles(walls), 1)} s" if len(walls) > 1 else ""
        remarks = [
            f"Reference: {names[reference.key]}, median {number(statistics.median(walls), 1)} s of "
            f"n = {len(walls)}{spread}. speedup: its median wall clock over that of the row, at equal work; throughput "
            "ratio: features per second of the row over its own. The 95% interval is a bootstrap interval, p the "
            "two-sided Mann-Whitney test."
        ]
    devices = sorted({text(group.setting.device_name) for group in groups})
    remarks.append(f"Hardware: {'; '.join(devices)}.")
    few = {len(group.repeats) for group in groups if len(group.repeats) < LEAST_FOR_MEDIAN_INTERVAL}
    if few:
        remarks.append(
            f"With n < {LEAST_FOR_MEDIAN_INTERVAL} a distribution-free 95% interval of the median does not exist."
        )
    remarks += [
        f"{text(names[group.key])}: {group.num_interrupted} of {len(group.repeats)} runs took several attempts; their "
        "wall clock includes the waits between them."
        for group in groups
        if group.num_interrupted
    ]
    return remarks
