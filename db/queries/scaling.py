"""Fits Amdahl's law to the wall clocks of one configuration at four or more world sizes."""

from dataclasses import dataclass
from math import atan, cos, pi, sin, sqrt

import numpy as np

from db.queries import statistics
from db.queries.differences import differences, is_equal_work
from db.queries.groups import Group
from db.queries.statistics import CONFIDENCE, Interval

LEAST_SIZES = 4
_NUM_REWEIGHTINGS = 10


@dataclass(frozen=True, kw_only=True)
class ScalingFit:
    """Wall clock = serial part + parallel part / world size, fitted by least squares of relative errors."""

    serial_share: float
    """Serial part over the wall clock of one process, 0 to 1."""
    serial_share_interval: Interval
    """95%, within 0 and 1."""
    next_world_size: int
    """Twice the largest measured world size."""
    wall_clock_s: float
    """Predicted at the next world size."""
    wall_clock_interval_s: Interval
    """95% prediction interval of one more median; at least 0."""


@dataclass(frozen=True)
class ScalingLaw:
    """A fit with its groups, the smallest world size first."""

    groups: tuple[Group, ...]
    fit: ScalingFit


def scaling_laws(groups: list[Group]) -> list[ScalingLaw]:
    """Return a fit for every set of groups that differ only in world size and nodes, with at least four sizes.

    The groups are of one recipe, each with wall clocks. The single process counts as size one of every strategy. Of
    several groups of one size, the one with the fewest nodes counts.
    """
    laws: dict[tuple[str, ...], ScalingLaw] = {}
    for anchor in groups:
        if anchor.setting.parallel in {None, "none"}:
            continue
        members = _by_size([group for group in groups if _belongs(group, anchor)])
        keys = tuple(group.key for group in members)
        if len(members) >= LEAST_SIZES and keys not in laws:
            sizes = [group.setting.world_size or 1 for group in members]
            times_s = [statistics.median(group.values_of("wall_clock_s")) for group in members]
            fit = fit_amdahl(sizes, times_s)
            if fit is not None:
                laws[keys] = ScalingLaw(tuple(members), fit)
    return list(laws.values())


def fit_amdahl(world_sizes: list[int], wall_clocks_s: list[float]) -> ScalingFit | None:
    """Return the fit of T(n) = a + b / n to one time per size, or None if the times do not follow this law.

    Times do not follow it if a fitted time exceeds twice that of one process, or is below half of perfect scaling.

    Errors are assumed to be proportional to the time, so residuals are divided by the fitted time. Intervals are those
    of linear regression with Student's t at n - 2 degrees of freedom; for the share a / (a + b), by the delta method.

    Raises:
        ValueError: fewer than four different sizes, or a time of 0 or less.

    Source: Amdahl 1967, Validity of the single processor approach; Draper and Smith 1998, Applied regression
    analysis, sections 3.1 and 9.2.
    """
    if len(set(world_sizes)) < LEAST_SIZES or min(wall_clocks_s) <= 0:
        raise ValueError(
            f"world_sizes={world_sizes}, wall_clocks_s={wall_clocks_s}: a fit needs {LEAST_SIZES} different sizes and "
            "times above 0; measure more sizes"
        )
    times = np.asarray(wall_clocks_s, dtype=np.float64)
    columns = np.stack([np.ones(len(times)), 1 / np.asarray(world_sizes, dtype=np.float64)], axis=1)
    scale = times
    for _ in range(_NUM_REWEIGHTINGS):
        solution, *_ = np.linalg.lstsq(columns / scale[:, None], times / scale, rcond=None)
        scale = columns @ solution
        whole = float(solution.sum())
        if np.any(scale <= whole * columns[:, 1] / 2) or np.any(scale > 2 * whole):
            return None
    degrees = len(times) - 2
    variance = float(np.sum(((times - columns @ solution) / scale) ** 2)) / degrees
    weighted = columns / scale[:, None]
    covariance = variance * np.linalg.inv(weighted.T @ weighted)
    serial, parallel = (float(value) for value in solution)
    gradient = np.array([parallel, -serial]) / whole**2
    reach = student_quantile(degrees)
    share = serial / whole
    spread = reach * sqrt(max(0.0, float(gradient @ covariance @ gradient)))
    next_size = 2 * max(world_sizes)
    at_next = np.array([1.0, 1 / next_size])
    predicted = max(0.0, float(at_next @ solution))
    deviation = reach * sqrt(max(0.0, float(at_next @ covariance @ at_next)) + variance * predicted**2)
    return ScalingFit(
        serial_share=_within_one(share),
        serial_share_interval=Interval(_within_one(share - spread), _within_one(share + spread)),
        next_world_size=next_size,
        wall_clock_s=predicted,
        wall_clock_interval_s=Interval(max(0.0, predicted - deviation), predicted + deviation),
    )


def student_quantile(degrees: int) -> float:
    """Return the two-sided 95% quantile of Student's t distribution.

    Source: Abramowitz and Stegun 1964, Handbook of mathematical functions, 26.7.3 and 26.7.4, by bisection.

    >>> round(student_quantile(2), 3), round(student_quantile(3), 3), round(student_quantile(30), 3)
    (4.303, 3.182, 2.042)
    """
    low, high = 0.0, 1e3
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_within(middle, degrees) < CONFIDENCE else (low, middle)
    return high


def _student_within(t: float, degrees: int) -> float:
    """Return the probability of a value between -t and t."""
    angle = atan(t / sqrt(degrees))
    is_odd = degrees % 2
    term = cos(angle) if is_odd else 1.0
    total = 0.0
    for index in range(1 + is_odd, degrees, 2):
        total += term
        term *= cos(angle) ** 2 * index / (index + 1)
    return 2 / pi * (angle + sin(angle) * total) if is_odd else sin(angle) * total


def _belongs(group: Group, anchor: Group) -> bool:
    setting = group.setting
    is_single = setting.parallel in {None, "none"} and setting.world_size == 1
    return (
        setting.world_size is not None
        and (is_single or setting.parallel == anchor.setting.parallel)
        and is_equal_work(group, anchor)
        and not differences(group, anchor)
    )


def _by_size(groups: list[Group]) -> list[Group]:
    """Return one group per world size: prefers the strategy itself to the single process, then the fewest nodes."""
    chosen: dict[int, Group] = {}
    order = sorted(groups, key=lambda group: (group.setting.parallel in {None, "none"}, group.setting.num_nodes or 0))
    for group in order:
        chosen.setdefault(group.setting.world_size or 1, group)
    return [group for _, group in sorted(chosen.items())]


def _within_one(share: float) -> float:
    return min(1.0, max(0.0, share))
