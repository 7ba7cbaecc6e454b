"""Summarize a trace: times of host, devices, steps, operators and kernels, for the database and the terminal."""

import os
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from elasticqa.profiling.trace.activity import DeviceActivity, HostActivity, device_activities, host_activity
from elasticqa.profiling.trace.ranking import CategoryTime, KernelTime, OperatorTime, kernel_ranking, operator_ranking
from elasticqa.profiling.trace.scan import scan
from elasticqa.profiling.trace.timeline import Kind, Timeline, read

_MAX_STEPS_SHOWN = 100
_MAX_NUMBER = 1 << 31


@dataclass(frozen=True)
class StepTimes:
    """Durations on the host of the complete steps; ``times_us`` has the first hundred, in order."""

    num_steps: int
    mean_us: float
    min_us: float
    max_us: float
    times_us: tuple[float, ...]


@dataclass(frozen=True)
class TraceSummary:
    """Summary of one trace; all times in microseconds.

    Attributes:
        span_us: from the earliest start to the latest end of an operator, annotation, runtime call or device event.
        num_skipped_events: without a duration, or with a negative one.
        steps: None without complete steps.
        devices: None, as are the kernels, in a trace without device events.
        operators: the thirty with the most self time.
        operator_categories: sums of self time over all operators; all of an optimizer step counts as optimizer.
        kernels: the thirty kernels, copies or memsets with the most time.
        kernel_categories: sums of durations of all kernels, copies and memsets; concurrent ones count in full.
    """

    span_us: float
    num_events: int
    num_skipped_events: int
    rank: int | None
    world_size: int | None
    backend: str | None
    steps: StepTimes | None
    host: HostActivity
    devices: tuple[DeviceActivity, ...] | None
    operators: tuple[OperatorTime, ...]
    operator_categories: tuple[CategoryTime, ...]
    num_operator_names: int
    kernels: tuple[KernelTime, ...] | None
    kernel_categories: tuple[CategoryTime, ...] | None
    num_kernel_names: int | None

    def to_dict(self) -> dict[str, Any]:
        """Return data for JSON; always under 50 kB."""
        return asdict(self)


def summarize(path: str | os.PathLike[str]) -> TraceSummary:
    """Return the summary of a Kineto trace, plain or gzip; needs tens of bytes of memory per event.

    Raises:
        TraceError: the file is not a complete trace.
    """
    timeline = read(path, scan(path))
    columns = [*timeline.threads.values(), *timeline.devices.values()]
    start = min(int(column.starts.min()) for column in columns)
    end = max(int(column.ends.max()) for column in columns)
    operators, operator_categories, num_operator_names = operator_ranking(timeline)
    kernels = kernel_ranking(timeline) if timeline.devices else (None, None, None)
    info = timeline.metadata.get("distributedInfo")
    facts = info if isinstance(info, dict) else {}
    backend = facts.get("backend")
    return TraceSummary(
        span_us=(end - start) / 1000,
        num_events=timeline.num_events,
        num_skipped_events=timeline.num_skipped_events,
        rank=_count(facts.get("rank")),
        world_size=_count(facts.get("world_size")),
        backend=backend[:40] if isinstance(backend, str) else None,
        steps=_step_times(timeline),
        host=host_activity(timeline),
        devices=device_activities(timeline, start, end) if timeline.devices else None,
        operators=operators,
        operator_categories=operator_categories,
        num_operator_names=num_operator_names,
        kernels=kernels[0],
        kernel_categories=kernels[1],
        num_kernel_names=kernels[2],
    )


def _step_times(timeline: Timeline) -> StepTimes | None:
    is_step = np.array([kind is Kind.STEP for kind in timeline.kinds], dtype=np.bool_)
    chosen = [(thread, is_step[thread.names]) for thread in timeline.threads.values()]
    none = np.empty(0, dtype=np.int64)
    starts = np.concatenate([none, *(thread.starts[mask] for thread, mask in chosen)])
    ends = np.concatenate([none, *(thread.ends[mask] for thread, mask in chosen)])
    if not len(starts):
        return None
    order = np.argsort(starts, kind="stable")
    times_us = ((ends - starts)[order] / 1000).tolist()
    return StepTimes(
        num_steps=len(times_us),
        mean_us=sum(times_us) / len(times_us),
        min_us=min(times_us),
        max_us=max(times_us),
        times_us=tuple(times_us[:_MAX_STEPS_SHOWN]),
    )


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and 0 <= value < _MAX_NUMBER else None
