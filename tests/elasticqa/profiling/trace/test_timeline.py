from typing import Any

import pytest

from elasticqa.profiling.trace import timeline as module
from elasticqa.profiling.trace.scan import Entry, TraceError
from elasticqa.profiling.trace.timeline import Kind, Timeline, read
from tests.support.traces import annotation, kernel, on_device, operator, runtime

Events = list[Any]


def _read(events: Events) -> Timeline:
    return read("t.json", [Entry("traceEvents", event, 10 * n) for n, event in enumerate(events)])


def _rule(event: Any) -> str:
    with pytest.raises(TraceError) as caught:
        _read([event])
    assert "\n" not in str(caught.value)
    return caught.value.rule


@pytest.mark.parametrize(
    ("ts", "nanoseconds"),
    [
        (5, 5_000),
        (5.25, 5_250),
        ("5.25", 5_250),
        ("7", 7_000),
        (1712867402348256, 1712867402348256_000),
        ("1712867402348256.789", 1712867402348256_789),
        (4458676522690.655, 4458676522690_655),
    ],
)
def test_add_reads_time_stamps_in_every_form(ts: Any, nanoseconds: int) -> None:
    columns = _read([{**operator("aten::mm", 0, 2.5), "ts": ts}]).threads[100, 1]
    assert columns.starts.tolist() == [nanoseconds]
    assert columns.ends.tolist() == [nanoseconds + 2_500]


@pytest.mark.parametrize("name", ["ts", "dur"])
@pytest.mark.parametrize("value", ["soon", [], {}, float("nan"), float("inf"), 1e300, 10**400, "1e400", "9" * 5000])
def test_add_refuses_an_invalid_time(name: str, value: Any) -> None:
    assert f"field {name}" in _rule({**operator("aten::mm", 0, 1), name: value})


def test_add_refuses_a_negative_start() -> None:
    assert "field ts is -1" in _rule(operator("aten::mm", -1, 1))


@pytest.mark.parametrize(
    ("event", "rule"),
    [
        (3, "is not an event"),
        ({**operator("x", 0, 1), "name": None}, "field name"),
        ({**operator("x", 0, 1), "tid": [1]}, "fields pid and tid"),
        ({**operator("x", 0, 1), "pid": None}, "fields pid and tid"),
        ({**kernel("x", 0, 1), "args": {"device": -1}}, "args.device"),
        ({**kernel("x", 0, 1), "args": {"device": "zero"}}, "args.device"),
        ({**kernel("x", 0, 1), "args": 5, "pid": "GPU"}, "args.device"),
    ],
)
def test_add_refuses_an_invalid_field(event: Any, rule: str) -> None:
    assert rule in _rule(event)


def test_add_names_the_position_of_an_error() -> None:
    with pytest.raises(TraceError, match=r"t\.json, character 10: field name"):
        _read([operator("aten::mm", 0, 1), {**operator("x", 0, 1), "name": 4}])


def test_add_reads_the_device_from_args_or_pid() -> None:
    events = [
        kernel("a", 0, 1, device=2),
        {**kernel("b", 0, 1), "args": {"device": "3"}},
        {**kernel("c", 0, 1, device=4), "args": {}},
    ]
    assert sorted(_read(events).devices) == [2, 3, 4]


def test_add_ignores_events_without_times() -> None:
    events: Events = [
        operator("aten::mm", 0, 1),
        operator("aten::is_leaf", 0, 1),
        {"ph": "M", "name": "process_name"},
        {"ph": "f", "cat": "ac2g", "name": "ac2g", "ts": "anything"},
        {**operator("x", 0, 1), "cat": ["cpu_op"]},
        {**operator("x", 0, 1), "cat": "python_function"},
    ]
    timeline = _read(events)
    assert (timeline.num_events, timeline.num_skipped_events, timeline.names) == (1, 0, ["aten::mm"])


def test_add_counts_events_without_a_valid_duration() -> None:
    unfinished = operator("x", 0, 1)
    del unfinished["dur"]
    timeline = _read([operator("aten::mm", 0, 1), unfinished, operator("x", 0, -5)])
    assert (timeline.num_events, timeline.num_skipped_events) == (1, 2)


def test_add_reads_the_categories_of_the_first_kineto() -> None:
    old = [{**operator("aten::mm", 0, 1), "cat": "Operator"}, {**runtime("cudaLaunchKernel", 0, 1), "cat": "Runtime"}]
    old += [{**kernel("gemm", 0, 1), "cat": "Kernel"}, {**on_device("x", "Memcpy HtoD", 0, 1), "cat": "Memcpy"}]
    assert _read(old).kinds == [Kind.OPERATOR, Kind.RUNTIME, Kind.KERNEL, Kind.MEMCPY]


def test_add_does_not_keep_names_of_annotations() -> None:
    events = [annotation(f"batch {n}", n, 1) for n in range(20)]
    events += [annotation(f"ProfilerStep#{n}", n, 1) for n in range(3)]
    assert _read(events).names == ["annotation", "ProfilerStep"]


def test_add_counts_names_over_the_limit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_NAMES", 2)
    timeline = _read([operator(f"op {n}", n, 1) for n in range(5)])
    assert timeline.names == ["op 0", "op 1", module.OTHER_NAMES]
    assert timeline.threads[100, 1].names.tolist() == [0, 1, 2, 2, 2]


@pytest.mark.parametrize(
    ("limit", "events"),
    [
        ("MAX_EVENTS", [operator("x", n, 1) for n in range(3)]),
        ("MAX_THREADS", [operator("x", n, 1, tid=n) for n in range(3)]),
        ("MAX_DEVICES", [kernel("x", n, 1, device=n) for n in range(3)]),
    ],
)
def test_add_refuses_events_over_a_limit(limit: str, events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, limit, 2)
    with pytest.raises(TraceError, match="more than 2"):
        _read(events)


@pytest.mark.parametrize("events", [[], [{"ph": "M", "name": "process_name"}]])
def test_read_refuses_a_trace_without_profiler_events(events: Events) -> None:
    with pytest.raises(TraceError, match=r"not a trace of torch\.profiler"):
        _read(events)
