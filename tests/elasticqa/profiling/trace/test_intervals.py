import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elasticqa.profiling.trace.intervals import Times, contains, gaps, intersect, length, subtract, union, union_of

_SPAN = 40
_pairs = st.lists(st.tuples(st.integers(0, _SPAN), st.integers(0, _SPAN)).map(sorted), max_size=12)


def _set(pairs: list[list[int]]) -> Times:
    array = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return union(array[:, 0], array[:, 1])


def _moments(times: Times) -> set[int]:
    """Return the moments in a set: the simple model that the arithmetic must agree with."""
    return {moment for start, end in times.tolist() for moment in range(start, end)}


def _assert_is_a_set(times: Times) -> None:
    assert times.dtype == np.int64
    assert (times[:, 0] < times[:, 1]).all()
    assert (times[1:, 0] > times[:-1, 1]).all()


@given(_pairs)
def test_union_contains_the_moments_of_all_intervals(pairs: list[list[int]]) -> None:
    times = _set(pairs)
    _assert_is_a_set(times)
    assert _moments(times) == {moment for start, end in pairs for moment in range(start, end)}
    assert length(times) == len(_moments(times))


@given(_pairs, _pairs)
def test_intersect_and_subtract_split_a_set(left: list[list[int]], right: list[list[int]]) -> None:
    ours, theirs = _set(left), _set(right)
    both, rest = intersect(ours, theirs), subtract(ours, theirs)
    for times in (both, rest):
        if len(times):
            _assert_is_a_set(times)
    assert _moments(both) == _moments(ours) & _moments(theirs)
    assert _moments(rest) == _moments(ours) - _moments(theirs)
    assert length(both) + length(rest) == length(ours)


@given(_pairs, _pairs)
def test_union_of_sets_contains_the_moments_of_all(left: list[list[int]], right: list[list[int]]) -> None:
    assert _moments(union_of([_set(left), _set(right)])) == _moments(_set(left)) | _moments(_set(right))


@given(_pairs, st.integers(0, _SPAN), st.integers(0, _SPAN))
def test_gaps_are_the_complement_in_the_span(pairs: list[list[int]], one: int, other: int) -> None:
    start, end = sorted((one, other))
    times = _set(pairs)
    assert _moments(gaps(times, start, end)) == set(range(start, end)) - _moments(times)


@given(_pairs)
def test_contains_finds_the_moments_in_a_set(pairs: list[list[int]]) -> None:
    times = _set(pairs)
    moments = np.arange(_SPAN + 1)
    assert set(moments[contains(times, moments)].tolist()) == _moments(times)
