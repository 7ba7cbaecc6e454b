"""Summary of a profiler trace, read from its journal line; invalid entries are skipped."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, get_args, get_origin

_LONGEST_TEXT = 300
_LARGEST = 1e18
"""Microseconds of 30,000 years; sums and shares of such numbers are finite."""


@dataclass(frozen=True)
class DeviceTimes:
    """Times of one device in microseconds, each the union over its streams; see `elasticqa.profiling.trace`."""

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


@dataclass(frozen=True)
class HostTimes:
    """Times of the host's threads in microseconds; the last four are None in a trace without runtime calls."""

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
class CategoryTime:
    """Total of all operators or kernels of one category."""

    category: str
    count: int
    time_us: float


@dataclass(frozen=True)
class KernelTime:
    """Total of all launches of one kernel, copy or memset."""

    name: str
    category: str
    count: int
    total_us: float


@dataclass(frozen=True)
class OperatorTime(KernelTime):
    """Total of all calls of one operator."""

    self_us: float


@dataclass(frozen=True)
class StepTimes:
    """Times of the complete steps in the trace, in microseconds on the host."""

    num_steps: int
    mean_us: float
    min_us: float
    max_us: float


@dataclass(frozen=True, kw_only=True)
class ProfileSummary:
    """How the time of one trace was spent."""

    span_us: float | None
    num_events: int | None
    world_size: int | None
    backend: str | None
    steps: StepTimes | None
    host: HostTimes | None
    devices: tuple[DeviceTimes, ...]
    """Empty in a trace without device events."""
    operators: tuple[OperatorTime, ...]
    operator_categories: tuple[CategoryTime, ...]
    num_operator_names: int | None
    kernels: tuple[KernelTime, ...]
    kernel_categories: tuple[CategoryTime, ...]
    num_kernel_names: int | None


@dataclass(frozen=True)
class TimePart:
    """A fraction of the span of a trace; the parts of one bar add up to 1."""

    what: str
    share: float


@dataclass(frozen=True)
class DeviceShares:
    """Means over the devices of a trace as fractions of its span; unlike the parts of a bar, they overlap."""

    compute: float
    communication: float
    exposed_communication: float
    copies: float
    """Copies and memsets."""
    idle: float
    host_bound: float


def read_summary(summary: Mapping[str, Any]) -> ProfileSummary:
    """Return the summary of a `profile` line; entries of a wrong type are skipped."""
    values = {field.name: _read(field.type, summary.get(field.name)) for field in fields(ProfileSummary)}
    # Treat an empty span as unknown: shares of it are undefined.
    return ProfileSummary(**{**values, "span_us": values["span_us"] or None})


def device_shares(summary: ProfileSummary) -> DeviceShares | None:
    """Return the mean shares of the devices, or None if the trace has no device events."""
    if not summary.devices or summary.span_us is None:
        return None
    whole_us = summary.span_us * len(summary.devices)

    def share(*names: str) -> float:
        times_us: list[float] = [getattr(device, name) for device in summary.devices for name in names]
        return sum(times_us) / whole_us

    return DeviceShares(
        compute=share("compute_us"),
        communication=share("communication_us"),
        exposed_communication=share("exposed_communication_us"),
        copies=share("memcpy_us", "memset_us"),
        idle=share("idle_us"),
        host_bound=share("host_bound_us"),
    )


def device_parts(device: DeviceTimes, span_us: float) -> tuple[TimePart, ...]:
    """Return how one device spent the span of a trace, without overlaps."""
    alone_us = device.busy_us - device.compute_us - device.exposed_communication_us
    times = (
        ("compute", device.compute_us),
        ("exposed communication", device.exposed_communication_us),
        # Copies that overlap neither compute nor communication.
        ("copies alone", max(0.0, alone_us)),
        ("idle, host-bound", device.host_bound_us),
        ("idle, other", max(0.0, device.idle_us - device.host_bound_us)),
    )
    return tuple(TimePart(what, time_us / span_us) for what, time_us in times)


def time_parts(summary: ProfileSummary) -> tuple[TimePart, ...]:
    """Return how the mean device, or the host of a trace without devices, spent the span; () if unknown."""
    if summary.span_us is None:
        return ()
    if summary.devices:
        bars = [device_parts(device, summary.span_us) for device in summary.devices]
        return tuple(
            TimePart(same[0].what, sum(part.share for part in same) / len(bars)) for same in zip(*bars, strict=True)
        )
    if summary.host is None:
        return ()
    busy = summary.host.busy_us / summary.span_us
    return TimePart("host in operators", busy), TimePart("host outside operators", max(0.0, 1 - busy))


# Check fields by their type hint, so that new fields need no second list.
_ACCEPTS: dict[Any, Callable[[Any], bool]] = {
    float: lambda value: type(value) in (int, float) and 0 <= value <= _LARGEST,
    int: lambda value: type(value) is int and 0 <= value <= _LARGEST,
    str: lambda value: type(value) is str and len(value) <= _LONGEST_TEXT,
}


def _accepts(kind: Any, value: Any) -> bool:
    kinds = get_args(kind) or (kind,)
    return (value is None and type(None) in kinds) or _ACCEPTS[kinds[0]](value)


def _read(kind: Any, value: Any) -> Any:
    """Return the value as the field's type; None, or no rows, if it has another type."""
    row_type = get_args(kind)[0]
    if row_type in _ACCEPTS:
        return value if _accepts(kind, value) else None
    if get_origin(kind) is not tuple:
        return _row(row_type, value)
    rows = (_row(row_type, item) for item in value) if type(value) is list else ()
    return tuple(row for row in rows if row is not None)


def _row(row_type: Any, values: Any) -> Any:
    """Return an object of the summary, or None if one of its values has a wrong type."""
    if type(values) is not dict:
        return None
    row = {field.name: values.get(field.name) for field in fields(row_type)}
    return row_type(**row) if all(_accepts(field.type, row[field.name]) for field in fields(row_type)) else None
