import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from elasticqa.profiling.trace.activity import DeviceActivity
from elasticqa.profiling.trace.summary import TraceSummary, summarize
from tests.support.traces import Event, annotation, kernel, on_device, operator, runtime, write_trace

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def _summary(tmp_path: Path, events: list[Event], **entries: Any) -> TraceSummary:
    return summarize(write_trace(tmp_path / "trace.json", events, **entries))


def _device(tmp_path: Path, events: list[Event]) -> DeviceActivity:
    devices = _summary(tmp_path, events).devices
    assert devices is not None
    assert len(devices) == 1
    return devices[0]


def test_device_times_equal_those_computed_by_hand(tmp_path: Path) -> None:
    # Stream 7: matmul 10-30, matmul 40-50, copy 60-70, memset 70-72; stream 20: NCCL 25-45 and 55-58.
    device = _device(
        tmp_path,
        [
            operator("aten::mm", 0, 100),
            kernel("gemm", 10, 20),
            kernel("gemm", 40, 10),
            on_device("gpu_memcpy", "Memcpy DtoH", 60, 10),
            on_device("gpu_memset", "Memset (Device)", 70, 2),
            kernel(NCCL, 25, 20, stream=20),
            kernel(NCCL, 55, 3, stream=20),
        ],
    )
    assert device.num_kernels == 4
    assert device.busy_us == 40 + 3 + 12
    assert device.compute_us == 30
    assert device.communication_us == 23
    assert device.exposed_communication_us == 10 + 3
    assert device.memcpy_us == 10
    assert device.memset_us == 2
    assert device.idle_us == 100 - 55
    assert device.host_bound_us == 45  # one operator lasts from end to end


@pytest.mark.parametrize(
    ("communication", "exposed"),
    [
        ((10, 20), 0),  # the same time as the computation
        ((12, 5), 0),  # inside it
        ((0, 5), 5),  # before it
        ((30, 5), 5),  # right behind it
        ((5, 30), 10),  # around it
        ((5, 10), 5),
    ],
)
def test_exposed_communication_excludes_concurrent_computation(
    tmp_path: Path, communication: tuple[int, int], exposed: int
) -> None:
    device = _device(tmp_path, [kernel("gemm", 10, 20), kernel(NCCL, *communication, stream=20)])
    assert device.communication_us == communication[1]
    assert device.exposed_communication_us == exposed


def test_concurrent_kernels_count_once_in_busy_time_and_in_full_in_the_ranking(tmp_path: Path) -> None:
    summary = _summary(tmp_path, [kernel("gemm", 0, 10), kernel("gemm", 5, 10, stream=8)])
    assert summary.devices is not None
    assert summary.kernels is not None
    assert summary.devices[0].busy_us == 15
    assert summary.kernels[0].total_us == 20


def test_host_bound_time_is_idle_time_while_a_thread_prepares_work(tmp_path: Path) -> None:
    # Idle: 0-20 and 30-100. The host works 5-15 and 25-90, of which it waits for the device 40-60.
    events = [
        annotation("ProfilerStep#1", 0, 100),
        operator("aten::mm", 5, 10),
        kernel("gemm", 20, 10),
        operator("aten::item", 25, 65),
        runtime("cudaStreamSynchronize", 40, 20),
    ]
    device = _device(tmp_path, events)
    assert device.idle_us == 90
    assert device.host_bound_us == 10 + (90 - 30) - 20
    assert device.host_bound_share == 0.5
    # Another thread at work makes the wait of the first no excuse.
    device = _device(tmp_path, [*events, operator("MmBackward0", 45, 5, tid=2)])
    assert device.host_bound_us == 55


def test_devices_have_separate_times(tmp_path: Path) -> None:
    properties = [{"id": 1, "name": "NVIDIA T4"}, {"id": "x"}, 7]
    events = [kernel("gemm", 0, 10), kernel("gemm", 2, 4, device=1)]
    devices = _summary(tmp_path, events, deviceProperties=properties).devices
    assert devices is not None
    assert [(device.device, device.name, device.busy_us) for device in devices] == [(0, None, 10), (1, "NVIDIA T4", 4)]


def test_host_counts_launches_and_waits(tmp_path: Path) -> None:
    host = _summary(
        tmp_path,
        [
            runtime("cudaLaunchKernel", 0, 3),
            runtime("cudaGraphLaunch", 5, 2),
            runtime("cudaMemcpyAsync", 8, 1),
            runtime("cudaDeviceSynchronize", 10, 7),
        ],
    ).host
    assert (host.num_launches, host.num_graph_launches, host.launch_us, host.wait_us) == (2, 1, 5, 7)


def test_trace_without_device_events_has_no_device_times(tmp_path: Path) -> None:
    summary = _summary(tmp_path, [operator("aten::mm", 0, 4), operator("aten::mm", 2, 4, tid=2)])
    of_devices = (summary.devices, summary.kernels, summary.kernel_categories, summary.num_kernel_names)
    assert of_devices == (None,) * 4
    assert (summary.host.num_launches, summary.host.launch_us, summary.host.wait_us) == (None,) * 3
    assert summary.host.operator_us == 8
    assert summary.host.busy_us == 6


def test_host_communication_is_exposed_where_no_operator_runs(tmp_path: Path) -> None:
    host = _summary(
        tmp_path,
        [
            operator("AddmmBackward0", 0, 10),
            annotation("gloo:all_reduce", 5, 20),
            operator("c10d::allreduce_", 5, 8, tid=2),
            operator("aten::mul_", 20, 2),
        ],
    ).host
    assert host.communication_us == 20
    assert host.exposed_communication_us == 20 - 5 - 2


def test_asynchronous_communication_does_not_affect_self_times(tmp_path: Path) -> None:
    events = [operator("aten::mm", 0, 10), annotation("gloo:all_reduce", 2, 30), operator("aten::fill_", 4, 3)]
    rows = {row.name: row.self_us for row in _summary(tmp_path, events).operators}
    assert rows == {"aten::mm": 7, "aten::fill_": 3}


def test_self_time_of_operators_excludes_annotations_and_runtime_calls(tmp_path: Path) -> None:
    summary = _summary(
        tmp_path,
        [
            annotation("ProfilerStep#0", 0, 100),
            operator("aten::linear", 0, 50),
            operator("aten::addmm", 10, 30),
            runtime("cudaLaunchKernel", 15, 5),
            operator("aten::addmm", 60, 30),
        ],
    )
    rows = [(row.name, row.category, row.count, row.self_us, row.total_us) for row in summary.operators]
    assert rows == [("aten::addmm", "matmul", 2, 55, 60), ("aten::linear", "matmul", 1, 20, 50)]
    assert [asdict(row) for row in summary.operator_categories] == [{"category": "matmul", "count": 3, "time_us": 75}]


def test_operators_inside_an_optimizer_step_count_as_optimizer(tmp_path: Path) -> None:
    summary = _summary(
        tmp_path,
        [operator("aten::mul_", 0, 5), annotation("Optimizer.step#AdamW.step", 10, 20), operator("aten::mul_", 12, 6)],
    )
    assert {row.category: (row.count, row.time_us) for row in summary.operator_categories} == {
        "elementwise": (1, 5),
        "optimizer": (1, 6),
    }
    assert [(row.category, row.count) for row in summary.operators] == [("elementwise", 2)]


def test_steps_are_in_order_of_time(tmp_path: Path) -> None:
    events = [annotation("ProfilerStep#8", 20, 30), annotation("ProfilerStep#7", 0, 20), operator("aten::mm", 0, 1)]
    steps = _summary(tmp_path, events).steps
    assert steps is not None
    assert asdict(steps) == {"num_steps": 2, "mean_us": 25, "min_us": 20, "max_us": 30, "times_us": (20, 30)}


def test_rank_and_backend_are_read_from_the_trace(tmp_path: Path) -> None:
    info = {"rank": 3, "world_size": 8, "backend": "nccl"}
    summary = _summary(tmp_path, [operator("aten::mm", 0, 1)], distributedInfo=info)
    assert (summary.rank, summary.world_size, summary.backend) == (3, 8, "nccl")


@pytest.mark.parametrize("info", [None, [], {"rank": "a", "world_size": -1, "backend": 3}, {"rank": 10**30}])
def test_invalid_facts_are_none(tmp_path: Path, info: Any) -> None:
    summary = _summary(tmp_path, [operator("aten::mm", 0, 1)], distributedInfo=info, deviceProperties=info)
    assert (summary.rank, summary.world_size, summary.backend) == (None, None, None)


def test_summary_stays_small_with_long_names(tmp_path: Path) -> None:
    hostile = "\U0001f600\\\x1b" * 300
    events = [operator(hostile + str(n), n, 1) for n in range(200)]
    events += [kernel(f"{n}{'é' * 900}", n, 1, device=n % 32) for n in range(200)]
    events += [annotation(f"ProfilerStep#{n}", n * 0.123, 0.123) for n in range(300)]
    events = [{**event, "ts": event["ts"] + 1.7e9} for event in events]
    properties = [{"id": n, "name": "\U0001f600" * 500} for n in range(40)]
    summary = _summary(tmp_path, events, deviceProperties=properties, distributedInfo={"backend": "é" * 9999})
    text = json.dumps(summary.to_dict(), allow_nan=False)
    assert len(text) < 50_000
    assert "\\u001b" not in text
    assert len(summary.operators) == 30
    assert summary.num_operator_names == 200
