"""Format the summary of a trace for the terminal."""

from collections.abc import Sequence

from elasticqa.profiling.trace.activity import DeviceActivity, HostActivity
from elasticqa.profiling.trace.ranking import CategoryTime
from elasticqa.profiling.trace.summary import TraceSummary

_NUM_ROWS = 10
_MAX_NAME_CHARS = 64
# Removed from names of kernels, so that the part in which they differ is visible.
_COMMON_PARTS = ("void ", "at::native::", "(anonymous namespace)::")


def as_text(summary: TraceSummary) -> str:
    """Return the summary as lines of about a hundred characters."""
    lines = _head(summary)
    for device in summary.devices or ():
        lines += ["", *_device(device, summary.span_us)]
    if summary.devices is None:
        lines += ["", "No device events: the activity of devices is unknown."]
    lines += ["", *_host(summary.host, summary.span_us)]
    if summary.kernels is not None:
        lines += ["", *_categories("Kernels by category", summary.kernel_categories or ())]
        lines += ["", f"{'Kernels with the most time':<{_MAX_NAME_CHARS}} {'time':>12} {'count':>9}"]
        lines += [_row(row.name, row.total_us, row.count) for row in summary.kernels[:_NUM_ROWS]]
        lines += _more(summary.num_kernel_names or 0)
    lines += ["", *_categories("Operators by category (self time)", summary.operator_categories)]
    lines += ["", f"{'Operators with the most self time':<{_MAX_NAME_CHARS}} {'self':>12} {'count':>9} {'total':>12}"]
    lines += [
        f"{_row(row.name, row.self_us, row.count)} {_milliseconds(row.total_us)}"
        for row in summary.operators[:_NUM_ROWS]
    ]
    lines += _more(summary.num_operator_names)
    return "\n".join(lines) + "\n"


def _head(summary: TraceSummary) -> list[str]:
    rank = "" if summary.rank is None else f"rank {summary.rank}"
    if rank and summary.world_size is not None:
        rank += f" of {summary.world_size}"
    if rank and summary.backend is not None:
        rank += f" ({summary.backend})"
    span = f"{summary.span_us / 1000:,.3f} ms, {summary.num_events:,} events"
    lines = [", ".join(filter(None, ("Trace", rank, span)))]
    if summary.num_skipped_events:
        are = "is" if summary.num_skipped_events == 1 else "are"
        lines.append(f"{_counted(summary.num_skipped_events, 'event')} without a valid duration {are} left out")
    if summary.steps is not None:
        steps = summary.steps
        mean, least, most = (f"{time / 1000:,.3f}" for time in (steps.mean_us, steps.min_us, steps.max_us))
        lines.append(f"{_counted(steps.num_steps, 'step')}: mean {mean} ms, from {least} to {most} ms")
    return lines


def _device(device: DeviceActivity, span_us: float) -> list[str]:
    name = "" if device.name is None else f" ({device.name})"
    return [
        f"Device {device.device}{name}: {_counted(device.num_kernels, 'kernel')}",
        _part("busy", device.busy_us, span_us),
        _part("  compute", device.compute_us, span_us),
        _part("  communication", device.communication_us, span_us),
        _part("    exposed", device.exposed_communication_us, span_us),
        _part("  copies", device.memcpy_us, span_us),
        _part("  memsets", device.memset_us, span_us),
        _part("idle", device.idle_us, span_us),
        _part("  host-bound", device.host_bound_us, span_us),
    ]


def _host(host: HostActivity, span_us: float) -> list[str]:
    lines = [
        f"Host: {_counted(host.num_threads, 'thread')}",
        _part("in operators", host.busy_us, span_us),
        f"    summed over threads {_milliseconds(host.operator_us)}",
    ]
    if host.communication_us:
        lines += [
            _part("communication", host.communication_us, span_us),
            _part("  exposed", host.exposed_communication_us, span_us),
        ]
    if host.launch_us is not None and host.wait_us is not None:
        launches = _counted(host.num_launches or 0, "launch", "launches")
        if host.num_graph_launches:
            launches += f", {host.num_graph_launches:,} of CUDA graphs"
        lines += [
            f"  launching            {_milliseconds(host.launch_us)}  ({launches})",
            f"  waiting for a device {_milliseconds(host.wait_us)}",
        ]
    return lines


def _part(name: str, time_us: float, span_us: float) -> str:
    share = time_us / span_us if span_us else 0.0
    return f"  {name:<21}{_milliseconds(time_us)} {share:>7.1%}"


def _categories(title: str, rows: Sequence[CategoryTime]) -> list[str]:
    whole = sum(row.time_us for row in rows)
    return [title, *(f"{_part(row.category, row.time_us, whole)} {row.count:>9,}" for row in rows)]


def _row(name: str, time_us: float, count: int) -> str:
    for part in _COMMON_PARTS:
        name = name.replace(part, "")
    shown = name if len(name) <= _MAX_NAME_CHARS else f"{name[: _MAX_NAME_CHARS - 3]}..."
    return f"{shown:<{_MAX_NAME_CHARS}} {_milliseconds(time_us)} {count:>9,}"


def _more(num_names: int) -> list[str]:
    return [f"... of {num_names:,} names"] if num_names > _NUM_ROWS else []


def _milliseconds(time_us: float) -> str:
    return f"{time_us / 1000:>9,.3f} ms"


def _counted(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"
