"""Amdahl's law fitted to four or more world sizes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from db import queries
from db.queries.scaling import fit_amdahl, student_quantile
from tests.support.query_runs import PLAIN, group

SIZES = (1, 2, 4, 8)


def amdahl_s(world_size: int, serial_s: float = 20.0, parallel_s: float = 180.0) -> float:
    return serial_s + parallel_s / world_size


def groups(sizes: tuple[int, ...] = SIZES) -> list[queries.Group]:
    return [
        group(
            replace(PLAIN, run_id=str(size), world_size=size, parallel="ddp" if size > 1 else "none"), (amdahl_s(size),)
        )
        for size in sizes
    ]


@pytest.mark.parametrize(("degrees", "t"), [(1, 12.706), (4, 2.776), (5, 2.571), (10, 2.228), (120, 1.980)])
def test_quantile_equals_published_tables(degrees: int, t: float) -> None:
    assert student_quantile(degrees) == pytest.approx(t, abs=5e-4)


def test_exact_times_recover_the_law() -> None:
    fit = fit_amdahl(list(SIZES), [amdahl_s(size) for size in SIZES])
    assert fit is not None
    assert fit.serial_share == pytest.approx(0.1)
    assert fit.serial_share_interval.high - fit.serial_share_interval.low < 1e-6
    assert fit.next_world_size == 16
    assert fit.wall_clock_s == pytest.approx(amdahl_s(16))
    assert fit.wall_clock_interval_s.low == pytest.approx(fit.wall_clock_interval_s.high, rel=1e-6)


def test_intervals_cover_the_true_value_at_their_level() -> None:
    generator = np.random.default_rng(0)
    hits = np.zeros(2)
    num_trials = 400
    for _ in range(num_trials):
        errors = 1 + 0.02 * generator.normal(size=5)
        fit = fit_amdahl([*SIZES, 16], [amdahl_s(size) * errors[i] for i, size in enumerate((*SIZES, 16))])
        assert fit is not None
        seen_s = amdahl_s(32) * (1 + 0.02 * generator.normal())
        share, time_s = fit.serial_share_interval, fit.wall_clock_interval_s
        hits += (share.low <= 0.1 <= share.high, time_s.low <= seen_s <= time_s.high)
    assert np.all((hits / num_trials > 0.91) & (hits / num_trials < 0.99))


def test_perfect_scaling_has_no_serial_share_below_zero() -> None:
    fit = fit_amdahl([1, 2, 4, 8], [100.0, 49.0, 24.0, 11.8])
    assert fit is not None
    assert fit.serial_share == 0.0
    assert fit.serial_share_interval.low == 0.0
    assert fit.wall_clock_interval_s.low >= 0.0


@pytest.mark.parametrize("times", [[1.0, 5.0, 25.0, 125.0], [100.0, 20.0, 4.0, 0.8]])
def test_times_that_violate_the_law_have_no_fit(times: list[float]) -> None:
    assert fit_amdahl(list(SIZES), times) is None


@given(st.lists(st.floats(1e-3, 1e6), min_size=4, max_size=4) | st.lists(st.floats(50, 100), min_size=4, max_size=4))
def test_any_times_give_a_fit_within_bounds(times: list[float]) -> None:
    fit = fit_amdahl(list(SIZES), times)
    if fit is None:
        return
    assert 0 <= fit.serial_share_interval.low <= fit.serial_share_interval.high <= 1
    assert 0 <= fit.wall_clock_interval_s.low <= fit.wall_clock_s <= fit.wall_clock_interval_s.high < np.inf


@pytest.mark.parametrize(
    ("sizes", "times"), [([1, 2, 4, 4], [9.0] * 4), ([1, 2, 4], [9.0] * 3), ([1, 2, 4, 8], [0.0] * 4)]
)
def test_fit_of_too_few_sizes_is_refused(sizes: list[int], times: list[float]) -> None:
    with pytest.raises(ValueError, match="a fit needs 4 different sizes"):
        fit_amdahl(sizes, times)


def test_law_is_fitted_from_four_sizes_of_one_configuration() -> None:
    (law,) = queries.scaling_laws(groups())
    assert [member.setting.world_size for member in law.groups] == [1, 2, 4, 8]
    assert law.fit.serial_share == pytest.approx(0.1)
    assert queries.scaling_laws(groups((1, 2, 4))) == []


@pytest.mark.parametrize(
    "changed",
    [{"device_name": "Tesla T4"}, {"global_batch_size": 96}, {"num_train_features": 5}, {"provenance": "reported"}],
)
def test_group_with_other_differences_is_not_fitted(changed: dict[str, object]) -> None:
    *others, last = groups()
    other = replace(last, setting=replace(last.setting, **changed))  # type: ignore[arg-type]
    assert queries.scaling_laws([*others, other]) == []


def test_size_on_fewer_nodes_counts() -> None:
    twice = replace(groups()[-1], key="two nodes", setting=replace(groups()[-1].setting, num_nodes=2))
    (law,) = queries.scaling_laws([twice, *groups()])
    assert "two nodes" not in [member.key for member in law.groups]
