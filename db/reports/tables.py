"""Tables of a report as text, independent of the output format."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from db.queries import Comparison, Group, RunRow, Setting, distinguishing_settings, statistics
from db.queries.statistics import LEAST_FOR_MEDIAN_INTERVAL
from db.reports.cells import UNKNOWN, interval, moment, number, significant, text

ItemT = TypeVar("ItemT")


@dataclass(frozen=True)
class Column(Generic[ItemT]):
    """A column: its head, and its cell for the item of a row."""

    title: str
    cell: Callable[[ItemT], str]
    is_number: bool = False


@dataclass(frozen=True)
class Table:
    """A table; cells are one line of any characters, notes follow below."""

    title: str
    columns: tuple[Column[Any], ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def table_of(
    title: str, columns: tuple[Column[ItemT], ...], items: Iterable[ItemT], notes: Iterable[str] = ()
) -> Table:
    """Return a table with one row per item."""
    rows = tuple(tuple(column.cell(item) for column in columns) for item in items)
    return Table(title, columns, rows, tuple(notes))


def devices(item: RunRow | Setting) -> str:
    """Return the number and name of devices.

    >>> from types import SimpleNamespace
    >>> devices(SimpleNamespace(world_size=4, num_nodes=2, device_name="NVIDIA A100"))
    '4 x NVIDIA A100 on 2 nodes'
    """
    if item.world_size is None and item.device_name is None:
        return UNKNOWN
    count = "" if item.world_size is None else f"{item.world_size} x "
    nodes = f" on {item.num_nodes} nodes" if item.num_nodes is not None and item.num_nodes > 1 else ""
    return f"{count}{text(item.device_name or 'unknown device')}{nodes}"


def _interval(value: statistics.Interval | None, digits: int = 2) -> str:
    return interval(value.low, value.high, digits) if value else UNKNOWN


def _kind_of_ratio(comparison: Comparison) -> str:
    ratio, reference = comparison.ratio, comparison.reference
    if ratio is not None:
        kind = ratio.kind.replace("_", " ")
        return kind if ratio.scaling is None else f"{kind}, {ratio.scaling} scaling"
    if reference is not None and reference.key == comparison.group.key:
        return "reference"
    return f"none: {comparison.unequal_work}, not equal work" if comparison.unequal_work else UNKNOWN


def _p_value(comparison: Comparison) -> str:
    test = comparison.ratio.test if comparison.ratio else None
    return significant(test.p_value if test else None, 2)


_RUN_COLUMNS: tuple[Column[RunRow], ...] = (
    Column("Run", lambda run: text(run.run_id)),
    Column("Name", lambda run: text(run.name)),
    Column("Started (UTC)", lambda run: moment(run.created_at)),
    Column("Status", lambda run: text(run.status)),
    Column("Provenance", lambda run: text(run.provenance)),
    Column("Recipe", lambda run: text(run.recipe)),
    Column("Strategy", lambda run: text(run.parallel)),
    Column("Devices", devices),
    Column("Global batch", lambda run: number(run.global_batch_size, 0), is_number=True),
    Column("EM (%)", lambda run: number(run.em), is_number=True),
    Column("F1 (%)", lambda run: number(run.f1), is_number=True),
    Column("Loss", lambda run: number(run.final_loss, 4), is_number=True),
    Column("Wall clock (s)", lambda run: number(run.wall_clock_s, 1), is_number=True),
    Column("Features/s", lambda run: significant(run.samples_per_s), is_number=True),
)
RATIO_COLUMNS: tuple[Column[Comparison], ...] = (
    Column("Ratio", lambda item: number(item.ratio.value if item.ratio else None), is_number=True),
    Column("95% interval", lambda item: _interval(item.ratio.interval if item.ratio else None)),
    Column("Kind of ratio", _kind_of_ratio),
    Column("p", _p_value, is_number=True),
    Column("Efficiency", lambda item: number(item.ratio.parallel_efficiency if item.ratio else None), is_number=True),
)


def runs_table(rows: Sequence[RunRow], num_matching: int) -> Table:
    """Return one row per run; `rows` are the first of `num_matching` runs."""
    notes = [] if num_matching == len(rows) else [f"{len(rows):,} of {num_matching:,} runs."]
    return table_of("Runs", _RUN_COLUMNS, rows, notes)


def speedup_table(comparisons: Sequence[Comparison]) -> Table:
    """Return one row per group of repeats; references are named by the number of their row."""
    names, configurations = group_names(comparisons), group_configurations(comparisons)
    columns: tuple[Column[Comparison], ...] = (
        Column("Group", lambda item: names[item.group.key]),
        Column("Configuration", lambda item: configurations[item.group.key] + _name_of_only_run(item.group)),
        Column("Devices", lambda item: devices(item.group.setting)),
        Column("Runs (n)", lambda item: item.group.as_reported or str(len(item.group.repeats)), is_number=True),
        Column("Wall clock, median (s)", lambda item: number(median_of(item, "wall_clock_s"), 1), is_number=True),
        Column("Reference", lambda item: names[item.reference.key] if item.reference else UNKNOWN),
        *RATIO_COLUMNS,
        Column("Quartiles (s)", lambda item: _quartiles(item.group)),
        Column("95% of the median (s)", lambda item: _interval(_median_interval(item.group), 1)),
        Column("Features/s, median", lambda item: significant(median_of(item, "samples_per_s")), is_number=True),
        Column("Provenance", lambda item: text(item.group.setting.provenance)),
    )
    notes = [
        "speedup: median wall clock of the reference over that of the group, at equal work; throughput ratio: "
        "features per second of the group over those of the reference, if the work is not equal or a wall clock "
        "is missing. Its 95% interval is a bootstrap interval; p is the two-sided Mann-Whitney test.",
    ]
    notes += few_runs_notes(comparisons) + difference_notes(comparisons, names)
    return table_of("Wall clock and speedup", columns, comparisons, notes)


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


def median_of(comparison: Comparison, measure: str) -> float | None:
    """Return the median of a field over the repeats of a group, or None if no repeat has it."""
    values = comparison.group.values_of(measure)
    return statistics.median(values) if values else None


def _name_of_only_run(group: Group) -> str:
    name = group.repeats[0].name if len(group.repeats) == 1 else None
    return f" ({text(name)})" if name else ""


def _quartiles(group: Group) -> str:
    walls = group.values_of("wall_clock_s")
    return interval(*statistics.quartiles(walls), 1) if len(walls) > 1 else UNKNOWN


def _median_interval(group: Group) -> statistics.Interval | None:
    walls = group.values_of("wall_clock_s")
    return statistics.median_interval(walls) if walls else None


def few_runs_notes(comparisons: Sequence[Comparison]) -> list[str]:
    """Return a note if a group has too few runs for an interval of its median."""
    if all(len(comparison.group.repeats) >= LEAST_FOR_MEDIAN_INTERVAL for comparison in comparisons):
        return []
    return [f"With n < {LEAST_FOR_MEDIAN_INTERVAL} a distribution-free 95% interval of the median does not exist."]


def difference_notes(comparisons: Sequence[Comparison], names: dict[str, str]) -> list[str]:
    """Return a note for each group that differs from its reference in more than devices and strategy."""
    return [
        f"{names[comparison.group.key]} against {names[comparison.reference.key]} also differs in "
        + "; ".join(f"{text(d.what)}: {text(d.reference)} -> {text(d.here)}" for d in comparison.differences)
        + "."
        for comparison in comparisons
        if comparison.reference is not None and comparison.differences
    ]
