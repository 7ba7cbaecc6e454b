"""Summaries of traces from other programs are consistent."""

import json
from pathlib import Path

import pytest

from elasticqa.profiling.trace.scan import scan
from elasticqa.profiling.trace.summary import summarize

FOREIGN = [
    "event_sync_trace.json.gz",
    "nccl_data.json.gz",
    "rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz",
    "rank_non_gpu.json.gz",
    "sampled_rank-0.json.gz",
    "triton_example.json.gz",
]


@pytest.fixture(params=FOREIGN)
def foreign(request: pytest.FixtureRequest, shared_data: Path) -> Path:
    return shared_data / "traces" / str(request.param)


def _durations(trace: Path, *categories: str) -> list[float]:
    events = [entry.value for entry in scan(trace) if entry.key == "traceEvents"]
    return [event["dur"] for event in events if event["ph"] == "X" and event.get("cat") in categories]


def test_foreign_trace_sums_are_consistent(foreign: Path) -> None:
    summary = summarize(foreign)
    close = pytest.approx
    host = summary.host
    assert 0 <= host.exposed_communication_us <= host.communication_us <= summary.span_us
    assert host.busy_us <= summary.span_us
    assert host.busy_us <= host.operator_us + 1e-6
    assert sum(row.time_us for row in summary.operator_categories) <= host.operator_us + 1e-6
    operators = sum(row.count for row in summary.operator_categories)
    assert 0 < operators <= len(_durations(foreign, "cpu_op"))
    assert all(0 <= row.self_us <= row.total_us + 1e-6 for row in summary.operators)
    on_device_us = _durations(foreign, "kernel", "gpu_memcpy", "gpu_memset")
    assert (summary.devices is None) == (not on_device_us)
    if summary.devices is not None:
        assert summary.kernel_categories is not None
        assert sum(row.time_us for row in summary.kernel_categories) == close(sum(on_device_us))
        assert sum(row.count for row in summary.kernel_categories) == len(on_device_us)
    for device in summary.devices or ():
        assert device.busy_us + device.idle_us == close(summary.span_us)
        parts = device.compute_us + device.exposed_communication_us + device.memcpy_us + device.memset_us
        assert max(device.compute_us, device.communication_us) <= device.busy_us <= parts + 1e-6
        assert device.exposed_communication_us <= device.communication_us
        assert device.host_bound_us <= device.idle_us + 1e-6
        assert device.host_bound_share == close(device.host_bound_us / summary.span_us)
    assert len(json.dumps(summary.to_dict(), allow_nan=False)) < 50_000


def test_foreign_trace_of_two_ranks_has_its_facts(shared_data: Path) -> None:
    summary = summarize(shared_data / "traces" / "nccl_data.json.gz")
    assert (summary.rank, summary.world_size, summary.backend) == (0, 2, "nccl")
    assert summary.devices is not None
    assert summary.devices[0].name == "NVIDIA A100-PG509-200"
    assert summary.devices[0].num_kernels == summary.host.num_launches == 2700
    assert summary.steps is not None
    assert summary.steps.times_us == (222442.191, 219726.905, 224936.243)
