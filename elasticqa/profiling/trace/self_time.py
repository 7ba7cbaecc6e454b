"""Self times of nested calls."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class SelfTimes(NamedTuple):
    """Results for the calls of one thread, in their order.

    Attributes:
        self_ns: duration without the calls directly inside.
        is_counted: False if a call is the only one inside a call of the same name; `key_averages` counts both as one.
    """

    self_ns: NDArray[np.int64]
    is_counted: NDArray[np.bool_]


def self_times(starts: NDArray[np.int64], ends: NDArray[np.int64], names: NDArray[np.int64]) -> SelfTimes:
    """Return self times as `torch.profiler`'s `key_averages` defines them.

    A call is inside another if its interval is; if two overlap only in part, neither is inside the other.

    Args:
        starts: nanoseconds.
        ends: nanoseconds.
        names: number of each call's name.

    >>> self_times(np.array([0, 2, 4]), np.array([10, 8, 5]), np.array([0, 1, 1])).self_ns.tolist()
    [4, 5, 1]
    """
    order = np.lexsort((-ends, starts))
    parents = np.full(len(order), -1, dtype=np.int64)
    parents[order] = _parents(order.tolist(), starts[order].tolist(), ends[order].tolist())
    inside = np.flatnonzero(parents >= 0)
    num_inside = np.bincount(parents[inside], minlength=len(order))
    self_ns = ends - starts
    np.subtract.at(self_ns, parents[inside], (ends - starts)[inside])
    is_counted = np.ones(len(order), dtype=np.bool_)
    is_counted[inside] = (names[inside] != names[parents[inside]]) | (num_inside[parents[inside]] != 1)
    return SelfTimes(self_ns, is_counted)


def _parents(numbers: list[int], starts: list[int], ends: list[int]) -> list[int]:
    """Return the number of the innermost call around each call, or -1; calls are sorted by start, longest first."""
    parents = []
    stack: list[tuple[int, int]] = []
    for number, start, end in zip(numbers, starts, ends, strict=True):
        while stack and (start >= stack[-1][0] or end > stack[-1][0]):
            stack.pop()
        parents.append(stack[-1][1] if stack else -1)
        stack.append((end, number))
    return parents
