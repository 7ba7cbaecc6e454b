"""Set operations on times. A set of times is an array of disjoint, sorted, non-empty, half-open intervals.

Its shape is (n, 2), int64: starts and ends in nanoseconds.
"""

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]
EMPTY: Times = np.empty((0, 2), dtype=np.int64)


def union(starts: Times, ends: Times) -> Times:
    """Return the union of intervals, which may overlap and be in any order.

    >>> union(np.array([5, 0, 8]), np.array([9, 3, 12])).tolist()
    [[0, 3], [5, 12]]
    """
    is_some = ends > starts
    starts, ends = starts[is_some], ends[is_some]
    if not len(starts):
        return EMPTY
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    opens = np.flatnonzero(starts[1:] > reach[:-1]) + 1
    firsts = np.concatenate(([0], opens))
    lasts = np.concatenate((opens, [len(starts)])) - 1
    return np.column_stack((starts[firsts], reach[lasts]))


def union_of(sets: list[Times]) -> Times:
    """Return the union of sets."""
    every = np.concatenate([EMPTY, *sets])
    return union(every[:, 0], every[:, 1])


def length(times: Times) -> int:
    """Return the total length of a set, in nanoseconds.

    >>> length(np.array([[0, 3], [5, 12]]))
    10
    """
    return int((times[:, 1] - times[:, 0]).sum())


def intersect(left: Times, right: Times) -> Times:
    """Return the intersection of two sets.

    >>> intersect(np.array([[0, 4], [6, 9]]), np.array([[3, 7]])).tolist()
    [[3, 4], [6, 7]]
    """
    first = np.searchsorted(right[:, 1], left[:, 0], side="right")
    behind = np.searchsorted(right[:, 0], left[:, 1], side="left")
    counts = np.maximum(behind - first, 0)
    ours = np.repeat(np.arange(len(left)), counts)
    # The intervals on the right that overlap one on the left are consecutive.
    theirs = np.arange(len(ours)) + np.repeat(first - (np.cumsum(counts) - counts), counts)
    starts = np.maximum(left[ours, 0], right[theirs, 0])
    ends = np.minimum(left[ours, 1], right[theirs, 1])
    return np.column_stack((starts, ends))


def gaps(times: Times, start: int, end: int) -> Times:
    """Return the set of times from ``start`` to ``end`` that are not in ``times``.

    >>> gaps(np.array([[2, 3], [5, 8]]), 0, 7).tolist()
    [[0, 2], [3, 5]]
    """
    starts = np.concatenate(([start], times[:, 1]))
    ends = np.concatenate((times[:, 0], [end]))
    return union(np.maximum(starts, start), np.minimum(ends, end))


def subtract(left: Times, right: Times) -> Times:
    """Return the set of times in ``left`` that are not in ``right``.

    >>> subtract(np.array([[0, 10]]), np.array([[2, 3], [9, 12]])).tolist()
    [[0, 2], [3, 9]]
    """
    if not len(left):
        return left
    return intersect(left, gaps(right, int(left[0, 0]), int(left[-1, 1])))


def contains(times: Times, moments: Times) -> NDArray[np.bool_]:
    """Return for each moment whether it is in a set.

    >>> contains(np.array([[0, 4], [6, 9]]), np.array([0, 3, 4, 8])).tolist()
    [True, True, False, True]
    """
    behind = np.searchsorted(times[:, 0], moments, side="right")
    return behind > np.searchsorted(times[:, 1], moments, side="right")
