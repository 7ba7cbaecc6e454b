"""Table of a scaling study: configuration, size, time, speedup with interval, efficiency and cost."""

from collections.abc import Sequence

from db.queries import Comparison, Group, compare, statistics
from db.reports.cells import UNKNOWN, interval, number, significant, text
from db.reports.tables import (
    RATIO_COLUMNS,
    Column,
    Table,
    difference_notes,
    few_runs_notes,
    group_configurations,
    median_of,
    table_of,
)


def study_table(groups: Sequence[Group], notes: Sequence[str] = ()) -> Table:
    """Return one row per group of a study, compared with the study's single-process group."""
    ordered = sorted(groups, key=_place)
    reference = next((group for group in ordered if _is_reference(group)), None)
    comparisons = [compare(group, reference) for group in ordered]
    configurations = group_configurations(comparisons)
    names = {group.key: f"{configurations[group.key]} at {_size(group)}" for group in ordered}
    columns: tuple[Column[Comparison], ...] = (
        Column("Configuration", lambda item: configurations[item.group.key]),
        Column("Nodes x processes", lambda item: _size(item.group)),
        Column("Runs (n)", lambda item: str(len(item.group.repeats)), is_number=True),
        Column("Wall clock, median (s)", lambda item: number(median_of(item, "wall_clock_s"), 1), is_number=True),
        *RATIO_COLUMNS,
        Column(f"{_unit(ordered)} a run", _cost, is_number=True),
    )
    said = [*_remarks(comparisons, reference, names), *difference_notes(comparisons, names), *notes]
    return table_of("Wall clock, speedup and cost", columns, comparisons, said)


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


def _cost(comparison: Comparison) -> str:
    wall_clock_s, world_size = median_of(comparison, "wall_clock_s"), comparison.group.setting.world_size
    if wall_clock_s is None or world_size is None:
        return UNKNOWN
    return significant(wall_clock_s * world_size / 3600, 3)


def _remarks(comparisons: Sequence[Comparison], reference: Group | None, names: dict[str, str]) -> list[str]:
    groups = [comparison.group for comparison in comparisons]
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
    remarks += few_runs_notes(comparisons)
    remarks += [
        f"{text(names[group.key])}: {group.num_interrupted} of {len(group.repeats)} runs took several attempts; their "
        "wall clock includes the waits between them."
        for group in groups
        if group.num_interrupted
    ]
    return remarks
