import numpy as np
import pytest

from elasticqa.profiling.trace.ranking import self_times

Call = tuple[int, int, int]


def _self_times(calls: list[Call]) -> tuple[list[int], list[bool]]:
    array = np.array(calls, dtype=np.int64).reshape(-1, 3)
    self_ns, is_counted = self_times(array[:, 0], array[:, 1], array[:, 2])
    return self_ns.tolist(), is_counted.tolist()


@pytest.mark.parametrize(
    ("calls", "self_ns"),
    [
        ([], []),
        ([(0, 10, 0)], [10]),
        ([(0, 10, 0), (1, 3, 1), (3, 4, 1)], [7, 2, 1]),
        ([(3, 4, 1), (0, 10, 0), (1, 9, 1)], [1, 2, 7]),  # in any order; the innermost counts for the middle one only
        ([(0, 10, 0), (10, 12, 1)], [10, 2]),  # one after the other
        ([(0, 10, 0), (8, 12, 1)], [10, 4]),  # overlap in part: neither is inside
        ([(0, 10, 0), (0, 10, 1)], [0, 10]),  # equal times: the second is inside the first
        ([(0, 10, 0), (0, 4, 1)], [6, 4]),
        ([(0, 10, 0), (6, 10, 1)], [6, 4]),
        ([(0, 10, 0), (5, 5, 1)], [10, 0]),
    ],
)
def test_self_time_excludes_the_calls_directly_inside(calls: list[Call], self_ns: list[int]) -> None:
    assert _self_times(calls)[0] == self_ns


def test_only_call_inside_one_of_the_same_name_is_not_counted() -> None:
    chain = [(0, 10, 5), (1, 9, 5), (2, 8, 5), (3, 4, 6)]
    assert _self_times(chain) == ([2, 2, 5, 1], [True, False, False, True])


def test_two_calls_inside_one_of_the_same_name_are_counted() -> None:
    assert _self_times([(0, 10, 5), (1, 2, 5), (3, 4, 5)])[1] == [True, True, True]
