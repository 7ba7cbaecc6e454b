"""What the host and each device were busy with, from the union of their events."""

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
    """The threads of the host; times in microseconds.

    The last four are None in a trace without runtime calls.
    """

    num_threads: int
    operator_us: float
    """In operators, added up over the threads; of operators inside one another once."""
    busy_us: float
    """In which at least one thread was in an operator."""
    communication_us: float
    """In which a collective of a CPU back end (gloo, MPI, UCC) was on its way; waiting for other ranks included."""
    exposed_communication_us: float
    """That part of it in which no thread was in an operator, those that only start communication left out."""
    num_launches: int | None
    """Calls that start a kernel or a graph."""
    num_graph_launches: int | None
    launch_us: float | None
    wait_us: float | None
    """In calls that only wait for a device, added up over the threads."""


@dataclass(frozen=True)
class DeviceActivity:
    """One device; times in microseconds, each the union over all streams."""

    device: int
    name: str | None
    num_kernels: int
    busy_us: float
    """In kernels, copies or memsets; ``idle_us`` is the rest of the trace's span."""
    compute_us: float
    """In kernels that do not communicate."""
    communication_us: float
    """In kernels that communicate (NCCL and the like); waiting for other ranks included."""
    exposed_communication_us: float
    """That part of it in which no computing kernel ran beside."""
    memcpy_us: float
    memset_us: float
    idle_us: float
    host_bound_us: float
    """That part of ``idle_us`` in which a thread of the host was in an operator or a runtime call other than one
    that waits for the device: the device had nothing to do while the host was still preparing work. Idle time outside
    is Python between operators, loading, or waiting for others."""
    host_bound_share: float
    """``host_bound_us`` as a fraction of the span."""


def host_activity(timeline: Timeline) -> HostActivity:
    """Return what the threads of the host did."""
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
    """Return what each device did from ``start`` to ``end``, the span of the trace in nanoseconds."""
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
    """Return by number of a name whether it is chosen."""
    pairs = zip(timeline.kinds, timeline.names, strict=True)
    return np.array([chosen(kind, name) for kind, name in pairs], dtype=np.bool_)


def _times(columns: Columns, flags: NDArray[np.bool_]) -> Times:
    is_chosen = flags[columns.names]
    return union(columns.starts[is_chosen], columns.ends[is_chosen])


def _calls(timeline: Timeline, chosen: Callable[[str], bool]) -> tuple[int, int]:
    """Return number and nanoseconds of runtime calls, over all threads."""
    flags = _flags(timeline, lambda kind, name: kind is Kind.RUNTIME and chosen(name))
    count = nanoseconds = 0
    for thread in timeline.threads.values():
        is_chosen = flags[thread.names]
        count += int(is_chosen.sum())
        nanoseconds += int((thread.ends - thread.starts)[is_chosen].sum())
    return count, nanoseconds


def _preparing(timeline: Timeline) -> Times:
    """Return when a thread was in an operator or runtime call and did not wait for a device."""
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
