"""Read the events of a trace into compact columns, about twenty bytes per event."""

import math
import os
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticqa.errors import shown
from elasticqa.profiling.trace.categories import ASYNCHRONOUS, PROFILER_EVENTS
from elasticqa.profiling.trace.scan import Entry, TraceError

MAX_EVENTS = 20_000_000
MAX_THREADS = 10_000
MAX_DEVICES = 32
MAX_NAMES = 100_000
"""Limit of distinct names; later names count as `OTHER_NAMES`."""

OTHER_NAMES = "(other names)"
_MAX_NAME_CHARS = 1000
_MAX_US = 4e15


class Kind(Enum):
    """Kind of an event."""

    OPERATOR = "operator"
    RUNTIME = "runtime"
    ANNOTATION = "annotation"
    ASYNCHRONOUS = "asynchronous"
    """Communication of a CPU backend: starts on one thread and ends on another, so it is not nested."""
    STEP = "step"
    OPTIMIZER = "optimizer"
    """The annotation of an optimizer step by torch.optim."""
    KERNEL = "kernel"
    MEMCPY = "memcpy"
    MEMSET = "memset"


# Kineto's categories, and below those of its first releases; other categories have no times of their own.
_KINDS = {
    "cpu_op": Kind.OPERATOR,
    "user_annotation": Kind.ANNOTATION,
    "cuda_runtime": Kind.RUNTIME,
    "cuda_driver": Kind.RUNTIME,
    "xpu_runtime": Kind.RUNTIME,
    "xpu_driver": Kind.RUNTIME,
    "kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.MEMCPY,
    "gpu_memset": Kind.MEMSET,
    "operator": Kind.OPERATOR,
    "runtime": Kind.RUNTIME,
    "memcpy": Kind.MEMCPY,
    "memset": Kind.MEMSET,
}
_ON_DEVICE = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)


class Columns:
    """Start, end (nanoseconds) and number of the name of each event of one thread or device."""

    def __init__(self) -> None:
        self._starts = array("q")
        self._ends = array("q")
        self._names = array("q")

    def append(self, start: int, duration: int, name: int) -> None:
        """Add an event."""
        self._starts.append(start)
        self._ends.append(start + duration)
        self._names.append(name)

    @property
    def starts(self) -> NDArray[np.int64]:
        """Nanoseconds, in the order of the file."""
        return np.frombuffer(self._starts, dtype=np.int64)

    @property
    def ends(self) -> NDArray[np.int64]:
        """Nanoseconds, in the order of the file."""
        return np.frombuffer(self._ends, dtype=np.int64)

    @property
    def names(self) -> NDArray[np.int64]:
        """Indices into `Timeline.names`, in the order of the file."""
        return np.frombuffer(self._names, dtype=np.int64)


@dataclass
class Timeline:
    """The events of a trace that have times.

    ``kinds`` and ``names`` are indexed by the number of a name; a name of two kinds has two numbers.
    ``num_skipped_events`` counts events without a valid duration: the profiler was stopped before they ended.
    """

    file: str | os.PathLike[str]
    threads: dict[tuple[int | str, int | str], Columns] = field(default_factory=dict)
    devices: dict[int, Columns] = field(default_factory=dict)
    kinds: list[Kind] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    num_events: int = 0
    num_skipped_events: int = 0
    _numbers: dict[tuple[Kind, str], int] = field(default_factory=dict)

    def add(self, event: Any, position: int) -> None:
        """Add an event of the file.

        Raises:
            TraceError: a required field is invalid, or a limit of this module is exceeded.
        """
        if not isinstance(event, dict):
            raise TraceError(self.file, position, f"{shown(event)} is not an event: an event is an object")
        category = event.get("cat")
        kind = _KINDS.get(category.lower()) if isinstance(category, str) else None
        if kind is None or event.get("ph") != "X":
            return
        name = event.get("name")
        if not isinstance(name, str):
            raise TraceError(self.file, position, f"field name is {shown(name)}: it must be a string")
        if name in PROFILER_EVENTS:
            return
        if event.get("dur") is None or (duration := self._nanoseconds(event, "dur", position)) < 0:
            self.num_skipped_events += 1
            return
        start = self._nanoseconds(event, "ts", position)
        self._columns(kind, event, position).append(start, duration, self._number(kind, name))
        self.num_events += 1
        if self.num_events > MAX_EVENTS:
            raise TraceError(self.file, position, f"more than {MAX_EVENTS} events: profile fewer steps")

    def _columns(self, kind: Kind, event: dict[str, Any], position: int) -> Columns:
        if kind in _ON_DEVICE:
            device = self._device(event, position)
            if device not in self.devices and len(self.devices) == MAX_DEVICES:
                raise TraceError(self.file, position, f"more than {MAX_DEVICES} devices in one trace")
            return self.devices.setdefault(device, Columns())
        process, thread = event.get("pid"), event.get("tid")
        if not isinstance(process, int | str) or not isinstance(thread, int | str):
            rule = f"fields pid and tid are {shown(process)} and {shown(thread)}: they must be integers or strings"
            raise TraceError(self.file, position, rule)
        if (process, thread) not in self.threads and len(self.threads) == MAX_THREADS:
            raise TraceError(self.file, position, f"more than {MAX_THREADS} threads in one trace")
        return self.threads.setdefault((process, thread), Columns())

    def _device(self, event: dict[str, Any], position: int) -> int:
        arguments = event.get("args")
        device = arguments.get("device") if isinstance(arguments, dict) else None
        if device is None:
            device = event.get("pid")  # Kineto writes the device as the process of its events
        if isinstance(device, str) and device.isdecimal() and len(device) < 4:
            device = int(device)
        if not isinstance(device, int) or not 0 <= device < 1000:
            rule = f"field args.device is {shown(device)}: it must be the number of a device (0 to 999)"
            raise TraceError(self.file, position, rule)
        return device

    def _nanoseconds(self, event: dict[str, Any], field_name: str, position: int) -> int:
        """Return a time of an event in whole nanoseconds; at current timestamps, doubles have no finer resolution."""
        value = event.get(field_name)
        try:
            number = float(value) if isinstance(value, int | float | str) else math.nan
        except (ValueError, OverflowError):
            number = math.nan
        if not -_MAX_US <= number <= _MAX_US or (number < 0 and field_name == "ts"):
            rule = f"field {field_name} is {shown(value)}: it must be microseconds, at most {_MAX_US:.0e}"
            raise TraceError(self.file, position, rule)
        if isinstance(value, int):
            return value * 1000
        if isinstance(value, str):
            return round(Decimal(value) * 1000)
        # Multiplying the whole number would round by up to a nanosecond, so a child could end after its parent.
        whole = math.floor(number)
        return whole * 1000 + round((number - whole) * 1000)

    def _number(self, kind: Kind, name: str) -> int:
        if kind is Kind.ANNOTATION:
            # Other annotations affect nesting, but their names, which may differ in each step, are not needed.
            if name.startswith("ProfilerStep#"):
                kind, name = Kind.STEP, "ProfilerStep"
            elif name.startswith("Optimizer.step#"):
                kind, name = Kind.OPTIMIZER, "Optimizer.step"
            elif name.startswith(ASYNCHRONOUS):
                kind = Kind.ASYNCHRONOUS
            else:
                name = "annotation"
        key = kind, name[:_MAX_NAME_CHARS]
        number = self._numbers.get(key)
        if number is None:
            if len(self.names) >= MAX_NAMES:
                key = kind, OTHER_NAMES
                if key in self._numbers:
                    return self._numbers[key]
            number = self._numbers[key] = len(self.names)
            self.kinds.append(kind)
            self.names.append(key[1])
        return number


def read(file: str | os.PathLike[str], entries: Iterable[Entry]) -> Timeline:
    """Return the timeline of a trace.

    Raises:
        TraceError: the trace is damaged, or contains no events with times.
    """
    timeline = Timeline(file)
    for key, value, position in entries:
        if key == "traceEvents":
            timeline.add(value, position)
        elif key in ("distributedInfo", "deviceProperties"):
            timeline.metadata[key] = value
    if not timeline.num_events:
        raise TraceError(
            file, None, "contains no operator, runtime call or kernel: it is not a trace of torch.profiler"
        )
    return timeline
