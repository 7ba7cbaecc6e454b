"""Statistics of comparisons, as pure functions of plain sequences of numbers.

Repeats of one configuration are few and their times are skewed (a slow disk, a cold cache). Therefore locations are
medians, and the test is a rank test.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, erfc, sqrt
from typing import Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Numbers = Sequence[float] | Array

CONFIDENCE = 0.95
NUM_RESAMPLES = 10_000
LEAST_FOR_MEDIAN_INTERVAL = 6
"""The extremes of n values enclose the median with probability 1 - 2 ** (1 - n): 0.9375 at 5, 0.969 at 6."""
MAX_FOR_EXACT_TEST = 60
"""Up to this many values, the number of ways to split them fits in 64 bits."""


@dataclass(frozen=True)
class Interval:
    """A closed interval that contains a quantity with at least 95% confidence."""

    low: float
    high: float


@dataclass(frozen=True)
class RankTest:
    """A two-sided p-value and the method that computed it."""

    p_value: float
    method: Literal["exact", "normal approximation"]


def median(values: Numbers) -> float:
    """Return the middle value, or the mean of the two middle ones.

    Raises:
        ValueError: there are no values.

    >>> median([3.0, 1.0, 2.0])
    2.0
    >>> median([4.0, 1.0, 2.0, 3.0])
    2.5
    """
    return float(np.median(_at_least(values, 1)))


def quartiles(values: Numbers) -> tuple[float, float]:
    """Return the first and the third quartile, interpolated linearly.

    Source: Hyndman and Fan 1996, Sample quantiles in statistical packages, definition 7.

    >>> quartiles([1.0, 2.0, 3.0, 4.0, 5.0])
    (2.0, 4.0)
    """
    low, high = np.quantile(_at_least(values, 1), [0.25, 0.75])
    return float(low), float(high)


def median_interval(values: Numbers) -> Interval | None:
    """Return the narrowest distribution-free 95% interval of the median, a pair of order statistics.

    None below six values: even the extremes then contain the median with less than 95%.

    Source: Conover 1999, Practical nonparametric statistics, section 3.2.

    >>> median_interval([1.0, 2.0, 3.0, 4.0, 5.0]) is None
    True
    >>> median_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    Interval(low=1.0, high=6.0)
    """
    ordered = np.sort(_at_least(values, 1))
    num_values = len(ordered)
    if num_values < LEAST_FOR_MEDIAN_INTERVAL:
        return None
    # Integers, because 2 ** n exceeds the range of floats at 1,024 values. Each tail may contain 1/40.
    num_outside, ways, tail = 0, 1, 1
    while 40 * (tail + (ways := ways * (num_values - num_outside) // (num_outside + 1))) <= 2**num_values:
        num_outside += 1
        tail += ways
    return Interval(float(ordered[num_outside]), float(ordered[num_values - 1 - num_outside]))


def ratio_of_medians(numerator: Numbers, denominator: Numbers) -> float:
    """Return the median of the numerator over the median of the denominator.

    Raises:
        ValueError: a side is empty or holds a value that is not above 0.

    >>> ratio_of_medians([100.0, 110.0, 90.0], [50.0, 55.0, 40.0])
    2.0
    """
    return median(_positive(numerator)) / median(_positive(denominator))


def ratio_interval(numerator: Numbers, denominator: Numbers, seed: int = 0) -> Interval | None:
    """Return the 95% bootstrap interval (percentile) of the ratio of medians.

    None if a side has a single value: its resamples would have no spread. The sides are resampled independently; with
    the same seed, equal values give equal intervals.

    Source: Efron and Tibshirani 1993, An introduction to the bootstrap, sections 8.3 and 13.3.

    >>> interval = ratio_interval([100.0, 100.0, 100.0], [50.0, 50.0, 50.0])
    >>> interval.low, interval.high
    (2.0, 2.0)
    """
    first, second = _positive(numerator), _positive(denominator)
    if min(len(first), len(second)) < 2:
        return None
    generator = np.random.default_rng(seed)
    ratios = _resampled_medians(first, generator) / _resampled_medians(second, generator)
    low, high = np.quantile(ratios, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(float(low), float(high))


def _resampled_medians(values: npt.NDArray[np.float64], generator: np.random.Generator) -> npt.NDArray[np.float64]:
    # Resample in parts: with thousands of repeats, one array would be too large.
    num_parts = 1 + NUM_RESAMPLES * len(values) // 2_000_000
    sizes = [len(part) for part in np.array_split(np.arange(NUM_RESAMPLES), num_parts)]
    picks = (generator.integers(0, len(values), size=(size, len(values))) for size in sizes)
    return np.concatenate([np.median(values[picked], axis=1) for picked in picks])


def mann_whitney(first: Numbers, second: Numbers) -> RankTest:
    """Return the two-sided Mann-Whitney test that one side tends to larger values than the other.

    Up to 60 values in total, the test is exact, also with ties. It considers every split of the pooled midranks into
    sides of these sizes: p is the share of splits with a rank sum at least as far from the mean as the observed one.
    For more values, it uses the normal approximation with corrections for ties and continuity.

    Source: Mann and Whitney 1947; Lehmann 2006, Nonparametrics, sections 1.2 and 1.4.

    >>> mann_whitney([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    RankTest(p_value=0.1, method='exact')
    """
    left, right = _at_least(first, 1), _at_least(second, 1)
    pooled = np.concatenate([left, right])
    doubled_ranks = _doubled_midranks(pooled)
    rank_sum = int(doubled_ranks[: len(left)].sum())
    if len(pooled) > MAX_FOR_EXACT_TEST:
        return RankTest(_normal_p(doubled_ranks, len(left), rank_sum), "normal approximation")
    num_ways = _ways_to_rank_sums(doubled_ranks, len(left))
    # The mean of the doubled rank sum, len(left) * (n + 1), is an integer, so rounding cannot decide a tie.
    mean = len(left) * (len(pooled) + 1)
    sums = np.arange(len(num_ways))
    num_extreme = int(num_ways[np.abs(sums - mean) >= abs(rank_sum - mean)].sum())
    return RankTest(num_extreme / comb(len(pooled), len(left)), "exact")


def _doubled_midranks(pooled: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    _, group, counts = np.unique(pooled, return_inverse=True, return_counts=True)
    last_rank = np.cumsum(counts)
    return np.asarray((2 * last_rank - counts + 1)[group], dtype=np.int64)


def _ways_to_rank_sums(doubled_ranks: npt.NDArray[np.int64], num_picked: int) -> npt.NDArray[np.int64]:
    """Return, at index s, the number of ways in which ``num_picked`` of the ranks sum up to s."""
    ways = np.zeros((num_picked + 1, int(doubled_ranks.sum()) + 1), dtype=np.int64)
    ways[0, 0] = 1
    for rank in doubled_ranks:
        # Update sizes from the largest down, so that each subset contains a rank at most once.
        for size in range(num_picked, 0, -1):
            ways[size, rank:] += ways[size - 1, :-rank]
    return np.asarray(ways[num_picked])


def _normal_p(doubled_ranks: npt.NDArray[np.int64], num_left: int, rank_sum: int) -> float:
    num_all = len(doubled_ranks)
    num_right = num_all - num_left
    _, ties = np.unique(doubled_ranks, return_counts=True)
    tie_term = float(np.sum(ties.astype(np.float64) ** 3 - ties)) / (num_all * (num_all - 1))
    variance = num_left * num_right / 12 * (num_all + 1 - tie_term)
    distance = abs(rank_sum / 2 - num_left * (num_all + 1) / 2) - 0.5
    if variance == 0 or distance <= 0:
        return 1.0
    return erfc(distance / sqrt(2 * variance))


def parallel_efficiency(ratio: float, reference_world_size: int, world_size: int) -> float:
    """Return the share of perfect scaling that a speedup (or throughput ratio) reaches; 1.0 is perfect.

    >>> parallel_efficiency(3.0, 1, 4)
    0.75
    >>> parallel_efficiency(1.5, 2, 4)
    0.75
    """
    if reference_world_size < 1 or world_size < 1:
        raise ValueError(
            f"reference_world_size={reference_world_size}, world_size={world_size}: both must be at least 1; "
            "leave out runs without a world size"
        )
    return ratio * reference_world_size / world_size


def _at_least(values: Numbers, least: int) -> Array:
    array = np.asarray(values, dtype=np.float64)
    if len(array) < least or not np.all(np.isfinite(array)):
        raise ValueError(f"values={list(values)}: at least {least} finite number is needed; leave out missing ones")
    return array


def _positive(values: Numbers) -> Array:
    array = _at_least(values, 1)
    if np.any(array <= 0):
        raise ValueError(f"values={list(values)}: a ratio of medians needs values above 0; leave out others")
    return array
