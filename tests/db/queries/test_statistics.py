"""Statistics against hand-computed values, an enumeration, and properties."""

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from db.queries import statistics

times = st.lists(st.floats(0.1, 1e4), min_size=1, max_size=8)
few_ranks = st.lists(st.integers(1, 6).map(float), min_size=1, max_size=6)


def enumerated_p(first: list[float], second: list[float]) -> float:
    """Return the two-sided p-value by listing every split, with ranks counted one by one."""
    pooled = first + second
    ranks = [sum(x < y for x in pooled) + (sum(x == y for x in pooled) + 1) / 2 for y in pooled]
    mean = len(first) * (len(pooled) + 1) / 2
    seen = abs(sum(ranks[: len(first)]) - mean)
    splits = list(combinations(ranks, len(first)))
    return sum(abs(sum(split) - mean) >= seen - 1e-9 for split in splits) / len(splits)


def test_quartiles_interpolate_between_values() -> None:
    assert statistics.quartiles([1.0, 2.0, 3.0, 4.0]) == (1.75, 3.25)


@pytest.mark.parametrize(("num_values", "outside"), [(6, 0), (8, 0), (9, 1), (11, 1), (12, 2), (20, 5)])
def test_median_interval_takes_the_tabled_order_statistics(num_values: int, outside: int) -> None:
    values = [float(value) for value in range(num_values)]
    assert statistics.median_interval(values) == statistics.Interval(outside, num_values - 1 - outside)


@pytest.mark.parametrize("num_values", range(1, 6))
def test_median_interval_of_fewer_than_six_values_is_none(num_values: int) -> None:
    assert statistics.median_interval([1.0] * num_values) is None


def test_median_interval_of_thousands_is_near_the_normal_one() -> None:
    interval = statistics.median_interval(np.arange(2000.0))
    assert interval is not None
    # The median of n values lies within 1.96 * sqrt(n) / 2 ranks of the middle with 95%.
    assert interval.low == pytest.approx(1000 - 1.96 * 2000**0.5 / 2, abs=2)
    assert interval.low + interval.high == 1999


def test_ratio_interval_of_thousands_needs_little_memory_and_is_narrow() -> None:
    values = np.linspace(90.0, 110.0, 1001)
    interval = statistics.ratio_interval(values, values / 2)
    assert interval is not None
    assert 1.95 < interval.low < 2.0 < interval.high < 2.05


def test_ratio_interval_is_reproducible_and_encloses_the_ratio() -> None:
    slow, fast = [100.0, 104.0, 97.0, 101.0, 99.0], [50.0, 51.0, 49.0, 52.0, 48.5]
    interval = statistics.ratio_interval(slow, fast)
    assert interval is not None
    assert interval == statistics.ratio_interval(slow, fast)
    assert interval.low < statistics.ratio_of_medians(slow, fast) < interval.high
    assert interval.low > 1.8
    assert interval.high < 2.2


def test_ratio_interval_of_one_value_is_none() -> None:
    assert statistics.ratio_interval([1.0], [1.0, 2.0]) is None


def test_ratio_interval_covers_the_true_ratio_at_its_level() -> None:
    generator = np.random.default_rng(7)
    num_covered = 0
    for seed in range(100):
        slow, fast = generator.lognormal(1.0, 0.1, 15), generator.lognormal(0.0, 0.1, 15)
        interval = statistics.ratio_interval(slow, fast, seed=seed)
        assert interval is not None
        num_covered += interval.low <= np.e <= interval.high
    assert num_covered >= 88


def test_mann_whitney_of_five_against_five_apart_is_two_in_252() -> None:
    result = statistics.mann_whitney([1.0, 2.0, 3.0, 4.0, 5.0], [6.0, 7.0, 8.0, 9.0, 10.0])
    assert result.p_value == pytest.approx(2 / 252)


@given(few_ranks, few_ranks)
def test_mann_whitney_equals_the_enumeration(first: list[float], second: list[float]) -> None:
    assert statistics.mann_whitney(first, second).p_value == pytest.approx(enumerated_p(first, second))


def test_mann_whitney_approximation_continues_the_exact_test() -> None:
    generator = np.random.default_rng(3)
    first, second = generator.normal(0.0, 1.0, 30), generator.normal(0.6, 1.0, 30)
    exact = statistics.mann_whitney(first, second)
    larger = statistics.mann_whitney(np.append(first, 0.0), second)
    assert (exact.method, larger.method) == ("exact", "normal approximation")
    assert larger.p_value == pytest.approx(exact.p_value, abs=0.02)


def test_mann_whitney_counts_sixty_values_without_overflow() -> None:
    first, second = np.arange(30.0), np.arange(30.0, 60.0)
    assert 0 < statistics.mann_whitney(first, second).p_value < 1e-16


@given(times, times)
def test_mann_whitney_is_symmetric_and_a_probability(first: list[float], second: list[float]) -> None:
    result = statistics.mann_whitney(first, second)
    assert 0 < result.p_value <= 1
    assert result.p_value == pytest.approx(statistics.mann_whitney(second, first).p_value)


@given(times, times)
def test_ratio_of_medians_inverts_with_its_sides(first: list[float], second: list[float]) -> None:
    ratio = statistics.ratio_of_medians(first, second)
    assert ratio * statistics.ratio_of_medians(second, first) == pytest.approx(1.0)


@given(times)
def test_median_lies_between_the_quartiles(values: list[float]) -> None:
    low, high = statistics.quartiles(values)
    assert low <= statistics.median(values) <= high


@pytest.mark.parametrize(
    ("formula", "arguments", "message"),
    [
        (statistics.median, ([],), "at least 1 finite number"),
        (statistics.median, ([float("nan")],), "at least 1 finite number"),
        (statistics.median, ([float("inf")],), "at least 1 finite number"),
        (statistics.ratio_of_medians, ([1.0, 0.0], [1.0]), "above 0"),
        (statistics.parallel_efficiency, (1.0, 1, 0), "world_size=0"),
    ],
)
def test_value_outside_of_its_range_is_refused(
    formula: Callable[..., float], arguments: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        formula(*arguments)
