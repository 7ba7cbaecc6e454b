"""Rank operators and kernels by time, and sum their times by category."""

import json
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from elasticqa.profiling.trace.categories import CATEGORIES, category
from elasticqa.profiling.trace.intervals import contains, union
from elasticqa.profiling.trace.timeline import Kind, Timeline

Int64 = NDArray[np.int64]

NUM_SHOWN = 30
_MAX_JSON_CHARS = 200


@dataclass(frozen=True)
class OperatorTime:
    """All calls of one operator, as in `torch.profiler`'s `key_averages`.

    ``self_us`` excludes the operators, annotations and runtime calls inside.
    """

    name: str
    category: str
    count: int
    self_us: float
    total_us: float


@dataclass(frozen=True)
class KernelTime:
    """All launches of one kernel, copy or memset, over all devices."""

    name: str
    category: str
    count: int
    total_us: float


@dataclass(frozen=True)
class CategoryTime:
    """All operators by self time, or all kernels by total time, of one category."""

    category: str
    count: int
    time_us: float


def operator_ranking(timeline: Timeline) -> tuple[tuple[OperatorTime, ...], tuple[CategoryTime, ...], int]:
    """Return the host's operators with the most self time, largest first, all categories, and the number of names."""
    size = len(timeline.names)
    # Sums over all threads for each number of a name; those of the optimizer include only calls inside its steps.
    counts, optimizer_counts = np.zeros((2, size), dtype=np.int64)
    self_us, total_us, optimizer_self_us = np.zeros((3, size))
    nests = np.array([kind is not Kind.ASYNCHRONOUS for kind in timeline.kinds], dtype=np.bool_)
    is_optimizer = np.array([kind is Kind.OPTIMIZER for kind in timeline.kinds], dtype=np.bool_)
    for thread in timeline.threads.values():
        chosen = nests[thread.names]
        starts, ends, names = thread.starts[chosen], thread.ends[chosen], thread.names[chosen]
        self_ns, is_counted = self_times(starts, ends, names)
        counts += np.bincount(names[is_counted], minlength=size)
        self_us += np.bincount(names, weights=self_ns / 1000, minlength=size)
        total_us += np.bincount(names[is_counted], weights=(ends - starts)[is_counted] / 1000, minlength=size)
        steps = is_optimizer[names]
        if steps.any():
            inside = contains(union(starts[steps], ends[steps]), starts)
            optimizer_counts += np.bincount(names[inside & is_counted], minlength=size)
            optimizer_self_us += np.bincount(names[inside], weights=self_ns[inside] / 1000, minlength=size)
    rows, parts = [], []
    for number in _numbers(timeline, (Kind.OPERATOR,)):
        name = timeline.names[number]
        kind, count, time_us = category(name), int(counts[number]), float(self_us[number])
        rows.append(OperatorTime(name, kind, count, time_us, float(total_us[number])))
        count_inside, time_us_inside = int(optimizer_counts[number]), float(optimizer_self_us[number])
        parts.append((kind, count - count_inside, time_us - time_us_inside))
        parts.append(("optimizer", count_inside, time_us_inside))
    rows.sort(key=lambda row: (-row.self_us, row.name))
    shown = tuple(replace(row, name=_short(row.name)) for row in rows[:NUM_SHOWN])
    return shown, _categories(parts), len(rows)


def self_times(starts: Int64, ends: Int64, names: Int64) -> tuple[Int64, NDArray[np.bool_]]:
    """Return for each call of one thread its nanoseconds without the calls directly inside, and whether it counts.

    As in `torch.profiler`'s `key_averages`, a call that is the only one inside a call of the same name does not count.
    A call is inside another if its interval is; if two overlap only in part, neither is inside the other.

    >>> self_times(np.array([0, 2, 4]), np.array([10, 8, 5]), np.array([0, 1, 1]))[0].tolist()
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
    return self_ns, is_counted


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


def kernel_ranking(timeline: Timeline) -> tuple[tuple[KernelTime, ...], tuple[CategoryTime, ...], int]:
    """Return what `operator_ranking` does, for all devices' kernels, copies and memsets, by total time."""
    size = len(timeline.names)
    total_ns, counts = np.zeros(size), np.zeros(size, dtype=np.int64)
    for device in timeline.devices.values():
        total_ns += np.bincount(device.names, weights=device.ends - device.starts, minlength=size)
        counts += np.bincount(device.names, minlength=size)
    rows = [
        KernelTime(
            timeline.names[number],
            category(timeline.names[number]) if timeline.kinds[number] is Kind.KERNEL else "copy",
            int(counts[number]),
            float(total_ns[number]) / 1000,
        )
        for number in _numbers(timeline, (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET))
    ]
    rows.sort(key=lambda row: (-row.total_us, row.name))
    shown = tuple(replace(row, name=_short(row.name)) for row in rows[:NUM_SHOWN])
    return shown, _categories([(row.category, row.count, row.total_us) for row in rows]), len(rows)


def _numbers(timeline: Timeline, kinds: tuple[Kind, ...]) -> list[int]:
    return [number for number, kind in enumerate(timeline.kinds) if kind in kinds]


def _categories(rows: list[tuple[str, int, float]]) -> tuple[CategoryTime, ...]:
    """Return the sums of the categories that occur, largest first."""
    counts = dict.fromkeys(CATEGORIES, 0)
    times = dict.fromkeys(CATEGORIES, 0.0)
    for name, count, time_us in rows:
        counts[name] += count
        times[name] += time_us
    sums = [CategoryTime(name, counts[name], times[name]) for name in CATEGORIES if counts[name]]
    return tuple(sorted(sums, key=lambda row: -row.time_us))


def _short(name: str) -> str:
    """Return a printable name, shortened in the middle if its JSON would be long."""
    clean = "".join(char if char.isprintable() else "\ufffd" for char in name)
    short, size = clean, _MAX_JSON_CHARS
    while len(json.dumps(short)) > _MAX_JSON_CHARS + 2:
        size -= size // 8
        short = f"{clean[: size * 2 // 3]}...{clean[-(size // 3) :]}"
    return short
