"""Comparison of a group of repeats with its reference: ratio, confidence and other differences."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

from db.journal_schema import Provenance
from db.queries import statistics
from db.queries.differences import Difference, differences, is_equal_work, unequal_work
from db.queries.groups import Group, Setting
from db.queries.statistics import Interval, RankTest

PROVENANCES = get_args(Provenance)


@dataclass(frozen=True)
class Ratio:
    """Speed relative to the reference, with its confidence interval and test."""

    kind: Literal["speedup", "throughput_ratio"]
    """`speedup`: ratio of wall clocks at equal work; otherwise ratio of features per second."""
    scaling: Literal["strong", "weak", "mixed"] | None
    """Equal global batch, equal batch per device, or neither; None at equal world sizes."""
    value: float
    interval: Interval | None
    """95% bootstrap interval; None if a side has one run."""
    test: RankTest | None
    """None if a side has one run."""
    parallel_efficiency: float | None


@dataclass(frozen=True)
class Comparison:
    """A group with its reference; the reference itself has neither ratio nor differences."""

    group: Group
    reference: Group | None
    ratio: Ratio | None
    differences: tuple[Difference, ...]

    @property
    def unequal_work(self) -> str | None:
        """A known difference in work, such as `4 against 10 steps` (reference first), or None."""
        return None if self.reference is None else unequal_work(self.group, self.reference)


def _plainest_first(candidates: Sequence[Group]) -> dict[tuple[str | None, str], list[Group]]:
    """Return the one-device groups by recipe and provenance: without a strategy first, then most repeats first."""
    found: dict[tuple[str | None, str], list[Group]] = {}
    for candidate in candidates:
        if candidate.setting.world_size == 1:
            found.setdefault((candidate.setting.recipe, candidate.setting.provenance), []).append(candidate)
    for same in found.values():
        same.sort(key=lambda each: (each.setting.parallel not in {None, "none"}, -len(each.repeats)))
    return found


def compare_all(
    groups: list[Group], references: tuple[str, ...] = (), candidates: list[Group] | None = None
) -> list[Comparison]:
    """Return every group with its reference, one of the candidates; None uses `groups`.

    `references` are keys of groups chosen by the user; each serves all groups of its recipe. Another group uses a
    one-device group of its recipe and provenance: prefers equal work, then no strategy, then the most repeats, then
    the newest.
    """
    candidates = groups if candidates is None else candidates
    chosen = {group.setting.recipe: group for group in candidates if group.key in references}
    plainest = _plainest_first(candidates)
    comparisons = []
    for group in groups:
        setting = group.setting
        plain = plainest.get((setting.recipe, setting.provenance), [])
        equal = (candidate for candidate in plain if is_equal_work(group, candidate))
        default = next(equal, plain[0] if plain else None)
        comparisons.append(compare(group, chosen.get(setting.recipe) or default))
    return comparisons


def compare(group: Group, reference: Group | None) -> Comparison:
    """Return one group with a reference."""
    if reference is None or reference.key == group.key:
        return Comparison(group, reference, None, ())
    return Comparison(group, reference, _ratio(group, reference), tuple(differences(group, reference)))


def _ratio(group: Group, reference: Group) -> Ratio | None:
    kind: Literal["speedup", "throughput_ratio"] = "throughput_ratio"
    here, there = group.values_of("samples_per_s"), reference.values_of("samples_per_s")
    walls = group.values_of("wall_clock_s"), reference.values_of("wall_clock_s")
    if is_equal_work(group, reference) and all(walls):
        # Swap the sides, so that above 1 means a faster group: reference time / group time, not group / reference.
        kind, there, here = "speedup", *walls
    if not here or not there:
        return None
    value = statistics.ratio_of_medians(here, there)
    efficiency = None
    if group.setting.world_size and reference.setting.world_size:
        efficiency = statistics.parallel_efficiency(value, reference.setting.world_size, group.setting.world_size)
    scaling = _scaling(group.setting, reference.setting)
    return Ratio(kind, scaling, value, *_certainty(tuple(here), tuple(there)), efficiency)


@lru_cache(maxsize=1024)
def _certainty(here: tuple[float, ...], there: tuple[float, ...]) -> tuple[Interval | None, RankTest | None]:
    """Return interval and test; cached, because every visit of a page needs the same thousands of resamples."""
    is_repeated = len(here) > 1 and len(there) > 1
    test = statistics.mann_whitney(here, there) if is_repeated else None
    return statistics.ratio_interval(here, there), test


def _scaling(here: Setting, there: Setting) -> Literal["strong", "weak", "mixed"] | None:
    sizes = (here.world_size, there.world_size, here.global_batch_size, there.global_batch_size)
    if None in sizes or here.world_size == there.world_size:
        return None
    if here.global_batch_size == there.global_batch_size:
        return "strong"
    per_device = [(setting.global_batch_size or 0) / (setting.world_size or 1) for setting in (here, there)]
    return "weak" if per_device[0] == per_device[1] else "mixed"
