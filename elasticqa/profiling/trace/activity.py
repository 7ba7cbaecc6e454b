"""Busy, idle and communication times of the host and of each device, from unions of their events."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elasticqa.profiling.trace.categories import category, is_graph_launch, is_launch, is_wait
from elasticqa.profiling.trace.intervals import Times, gaps, intersect, length, subtract, union, union_of
from elasticqa.profiling.trace.timeline import Columns, Kind, Timeline

_MAX_DEVICE_NAME_CHARS = 60


@dataclass(frozen=True)
class HostActivity:
    """Times of the host's threads, in microseconds.

    Attributes:
        operator_us: in operators, summed over threads; nested operators count once.
        busy_us: during which at least one thread was in an operator.
        communication_us: during which a collective of a CPU backend (gloo, MPI, UCC) was running, including waits for
            other ranks.
        exposed_communication_us: the part of ``communication_us`` during which no thread was in an operator other than
            those that start communication.
        num_launches: calls that launch a kernel or a CUDA graph; None, as are the next three, without runtime calls.
        launch_us: in these calls, summed over threads.
        wait_us: in calls that only wait for a device, summed over threads.
    """

    num_threads: int
    operator_us: float
    busy_us: float
    communication_us: float
    exposed_communication_us: float
    num_launches: int | None
    num_graph_launches: int | None
    launch_us: float | None
    wait_us: float | None


@dataclass(frozen=True)
class DeviceActivity:
    """Times of one device, in microseconds, each the union over all streams.

    Attributes:
        busy_us: in kernels, copies or memsets.
        compute_us: in kernels that do not communicate.
        communication_us: in kernels that communicate (such as NCCL's), including waits for other ranks.
        exposed_communication_us: the part of ``communication_us`` without a concurrent compute kernel.
        idle_us: the rest of the trace's span.
        host_bound_us: the part of ``idle_us`` during which a host thread was in an operator or in a runtime call that
            does not wait for the device: the host was still preparing work. The rest of the idle time is Python between
            operators, data loading, or waits for other ranks.
        host_bound_share: ``host_bound_us`` as a fraction of the span.
    """

    device: int
    name: str | None
    num_kernels: int
    busy_us: float
    compute_us: float
    communication_us: float
    exposed_communication_us: float
    memcpy_us: float
    memset_us: float
    idle_us: float
    host_bound_us: float
    host_bound_share: float


def host_activity(timeline: Timeline) -> HostActivity:
    """Return the times of the host's threads."""
    is_operator = _flags(timeline, lambda kind, _: kind is Kind.OPERATOR)
    is_collective = _flags(timeline, lambda kind, _: kind is Kind.ASYNCHRONOUS)
    is_compute = _flags(timeline, lambda kind, name: kind is Kind.OPERATOR and category(name) != "communication")
    threads = list(timeline.threads.values())
    operators = [_times(thread, is_operator) for thread in threads]
    collectives = union_of([_times(thread, is_collective) for thread in threads])
    compute = union_of([_times(thread, is_compute) for thread in threads])
    has_calls = Kind.RUNTIME in timeline.kinds
    num_launches, launch_ns = _calls(timeline, is_launch)
    num_graph_launches, _ = _calls(timeline, is_graph_launch)
    _, wait_ns = _calls(timeline, is_wait)
    return HostActivity(
        num_threads=len(threads),
        operator_us=sum(map(length, operators)) / 1000,
        busy_us=length(union_of(operators)) / 1000,
        communication_us=length(collectives) / 1000,
        exposed_communication_us=length(subtract(collectives, compute)) / 1000,
        num_launches=num_launches if has_calls else None,
        num_graph_launches=num_graph_launches if has_calls else None,
        launch_us=launch_ns / 1000 if has_calls else None,
        wait_us=wait_ns / 1000 if has_calls else None,
    )


def device_activities(timeline: Timeline, start: int, end: int) -> tuple[DeviceActivity, ...]:
    """Return the times of each device; ``start`` and ``end`` are the span of the trace in nanoseconds."""
    preparing = _preparing(timeline)
    names = _device_names(timeline)
    is_communication = _flags(timeline, lambda kind, name: kind is Kind.KERNEL and category(name) == "communication")
    is_kernel = _flags(timeline, lambda kind, _: kind is Kind.KERNEL)
    is_memcpy = _flags(timeline, lambda kind, _: kind is Kind.MEMCPY)
    is_memset = _flags(timeline, lambda kind, _: kind is Kind.MEMSET)
    activities = []
    for device, columns in sorted(timeline.devices.items()):
        busy = union(columns.starts, columns.ends)
        compute = _times(columns, is_kernel & ~is_communication)
        communication = _times(columns, is_communication)
        host_bound = intersect(gaps(busy, start, end), preparing)
        activities.append(
            DeviceActivity(
                device=device,
                name=names.get(device),
                num_kernels=int(is_kernel[columns.names].sum()),
                busy_us=length(busy) / 1000,
                compute_us=length(compute) / 1000,
                communication_us=length(communication) / 1000,
                exposed_communication_us=length(subtract(communication, compute)) / 1000,
                memcpy_us=length(_times(columns, is_memcpy)) / 1000,
                memset_us=length(_times(columns, is_memset)) / 1000,
                idle_us=(end - start - length(busy)) / 1000,
                host_bound_us=length(host_bound) / 1000,
                host_bound_share=length(host_bound) / (end - start) if end > start else 0.0,
            )
        )
    return tuple(activities)


def _flags(timeline: Timeline, chosen: Callable[[Kind, str], bool]) -> NDArray[np.bool_]:
    """Return for each entry of `Timeline.names` whether it is chosen."""
    pairs = zip(timeline.kinds, timeline.names, strict=True)
    return np.array([chosen(kind, name) for kind, name in pairs], dtype=np.bool_)


def _times(columns: Columns, flags: NDArray[np.bool_]) -> Times:
    is_chosen = flags[columns.names]
    return union(columns.starts[is_chosen], columns.ends[is_chosen])


def _calls(timeline: Timeline, chosen: Callable[[str], bool]) -> tuple[int, int]:
    """Return the number of the chosen runtime calls and their nanoseconds, summed over threads."""
    flags = _flags(timeline, lambda kind, name: kind is Kind.RUNTIME and chosen(name))
    count = nanoseconds = 0
    for thread in timeline.threads.values():
        is_chosen = flags[thread.names]
        count += int(is_chosen.sum())
        nanoseconds += int((thread.ends - thread.starts)[is_chosen].sum())
    return count, nanoseconds


def _preparing(timeline: Timeline) -> Times:
    """Return the times at which a thread was in an operator or runtime call and did not wait for a device."""
    is_work = _flags(timeline, lambda kind, _: kind in (Kind.OPERATOR, Kind.RUNTIME))
    waits = _flags(timeline, lambda kind, name: kind is Kind.RUNTIME and is_wait(name))
    return union_of([subtract(_times(thread, is_work), _times(thread, waits)) for thread in timeline.threads.values()])


def _device_names(timeline: Timeline) -> dict[int, str]:
    properties = timeline.metadata.get("deviceProperties")
    names = {}
    for device in properties if isinstance(properties, list) else []:
        if isinstance(device, dict) and isinstance(device.get("id"), int) and isinstance(device.get("name"), str):
            names[device["id"]] = device["name"][:_MAX_DEVICE_NAME_CHARS]
    return names
