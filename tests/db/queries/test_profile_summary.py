"""Summaries of profiler traces."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from db import queries
from db.queries.profile_summary import KernelTime, read_summary
from elasticqa.profiling.trace.summary import summarize
from tests.support.dashboard_traces import CPU_PROFILE, SPAN_US, gpu_profile


def test_shares_are_of_the_span() -> None:
    shares = queries.device_shares(read_summary(gpu_profile(4)))
    assert shares is not None
    assert shares.communication == pytest.approx(0.15)
    assert shares.exposed_communication == pytest.approx(0.075)
    assert shares.copies == pytest.approx(0.03)
    assert shares.idle == pytest.approx(2 * shares.host_bound)


def test_devices_of_one_trace_are_averaged() -> None:
    summary = gpu_profile(4)
    idle = {**summary["devices"][0], "device": 1, "compute_us": 0.0}
    summary["devices"].append(idle)
    one, both = (queries.device_shares(read_summary(item)) for item in (gpu_profile(4), summary))
    assert one is not None
    assert both is not None
    assert both.compute == pytest.approx(one.compute / 2)
    assert both.idle == pytest.approx(one.idle)


def test_time_parts_of_a_device_add_up_to_the_span() -> None:
    parts = queries.time_parts(read_summary(gpu_profile(4)))
    assert [part.what for part in parts][:3] == ["compute", "exposed communication", "copies alone"]
    assert sum(part.share for part in parts) == pytest.approx(1)
    assert parts[2].share == pytest.approx(0.02)


def test_trace_without_devices_has_no_device_shares() -> None:
    summary = read_summary(CPU_PROFILE)
    assert summary.devices == ()
    assert queries.device_shares(summary) is None
    parts = queries.time_parts(summary)
    assert [part.what for part in parts] == ["host in operators", "host outside operators"]
    assert [part.share for part in parts] == pytest.approx([0.4, 0.6])


@pytest.mark.parametrize(
    "changed", [{"total_us": float("nan")}, {"total_us": -1.0}, {"count": 10**400}, {"name": 1}, {"name": "x" * 301}]
)
def test_entry_of_a_wrong_type_is_skipped(changed: dict[str, Any]) -> None:
    good = {"name": "gemm", "category": "matmul", "count": 2, "total_us": 5.0}
    summary = read_summary({"kernels": [good, {**good, **changed}, None]})
    assert summary.kernels == (KernelTime("gemm", "matmul", 2, 5.0),)


@pytest.mark.parametrize("span", [None, 0.0, "1", -1.0, float("inf")])
def test_summary_without_a_span_has_no_shares(span: object) -> None:
    summary = read_summary({**gpu_profile(1), "span_us": span})
    assert summary.span_us is None
    assert queries.device_shares(summary) is None
    assert queries.time_parts(summary) == ()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted(gpu_profile(1))), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(sorted(gpu_profile(1))), JSON))
def test_any_object_can_be_read(anything: dict[str, Any]) -> None:
    summary = read_summary({**gpu_profile(2), **anything})
    queries.device_shares(summary)
    assert all(part.share >= 0 for part in queries.time_parts(summary))


def test_every_key_of_the_dataclasses_is_one_of_a_real_summary(shared_data: Path) -> None:
    made = json.loads(json.dumps(summarize(shared_data / "traces" / "nccl_data.json.gz").to_dict()))
    summary = read_summary(made)
    assert len(summary.devices) == len(made["devices"]) > 0
    assert len(summary.kernels) == len(made["kernels"]) > 0
    assert len(summary.operators) == len(made["operators"]) > 0
    assert summary.host is not None
    assert summary.steps is not None
    assert sum(part.share for part in queries.time_parts(summary)) == pytest.approx(1, abs=1e-6)
    assert made["span_us"] != SPAN_US
