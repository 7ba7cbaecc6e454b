import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.profiler import ProfilerAction, ProfilerActivity, profile

from elasticqa.profiling.step_profiler import (
    MIN_WARMUP_STEPS,
    WAIT_STEPS,
    ProfileError,
    ProfileSchedule,
    StepProfiler,
    profile_schedule,
)
from elasticqa.profiling.trace.scan import scan
from elasticqa.profiling.trace.summary import TraceSummary, summarize
from elasticqa.profiling.trace.timeline import Kind, read


class _Job:
    """Trains a small encoder."""

    def __init__(self, device: str = "cpu") -> None:
        layer = nn.TransformerEncoderLayer(32, 2, 64, batch_first=True)
        self.model = nn.Sequential(nn.Embedding(100, 32), layer, nn.Linear(32, 2)).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.ids = torch.randint(100, (4, 16), device=device)

    def step(self) -> None:
        self.model(self.ids).logsumexp(-1).mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def _profiler(run_dir: Path, num_steps: int, step: int = 0, device_type: str = "cpu") -> StepProfiler:
    return StepProfiler(run_dir, attempt=2, rank=3, step=step, num_steps=num_steps, device_type=device_type)


@pytest.mark.parametrize(
    ("num_steps", "expected"),
    [
        (1, (0, 0, 1)),
        (2, (0, 1, 1)),
        (3, (1, 1, 1)),
        (4, (2, 1, 1)),
        (12, (2, 1, 9)),
        (13, (2, 1, 10)),
        (14, (2, 2, 10)),
        (111, (2, 99, 10)),
        (112, (2, 100, 10)),
        (100_000, (2, 100, 10)),
    ],
)
def test_schedule_shrinks_warmup_then_active_then_wait(num_steps: int, expected: tuple[int, int, int]) -> None:
    assert profile_schedule(num_steps) == ProfileSchedule(*expected)


@given(st.integers(1, 300), st.data())
def test_schedule_of_a_later_attempt_traces_the_same_steps(num_steps: int, data: st.DataObject) -> None:
    step = data.draw(st.integers(0, num_steps - 1))
    whole, schedule = profile_schedule(num_steps), profile_schedule(num_steps, step)
    active = range(step + schedule.wait + schedule.warmup, step + schedule.num_steps)
    assert whole.num_steps == min(num_steps, 112)
    assert whole.active >= 1
    assert whole.warmup >= (num_steps > 1)
    assert active.stop <= num_steps
    first = whole.wait + whole.warmup
    if step <= first - WAIT_STEPS - MIN_WARMUP_STEPS:
        assert active == range(first, whole.num_steps)
    else:
        assert schedule.warmup <= MIN_WARMUP_STEPS
        assert len(active) >= 1


def test_schedule_without_steps_is_refused() -> None:
    with pytest.raises(ValueError, match="num_steps=0 leaves nothing"):
        profile_schedule(0)


@given(st.integers(1, 130))
def test_schedule_runs_each_phase_once(num_steps: int) -> None:
    schedule = profile_schedule(num_steps)
    actions = [schedule.action(step) for step in range(schedule.num_steps + 5)]
    assert actions == [
        *[ProfilerAction.NONE] * schedule.wait,
        *[ProfilerAction.WARMUP] * schedule.warmup,
        *[ProfilerAction.RECORD] * (schedule.active - 1),
        ProfilerAction.RECORD_AND_SAVE,
        *[ProfilerAction.NONE] * 5,
    ]


def test_step_profiler_writes_trace_and_table_and_returns_the_journal_line(tmp_path: Path) -> None:
    job = _Job()
    profiler = _profiler(tmp_path, num_steps=47, step=40)
    profiler.start()
    lines, tracing = [], []
    for _ in range(9):
        tracing.append(profiler.is_tracing)
        job.step()
        lines.append(profiler.step())
    profiler.stop()
    assert tracing == [False, False, True, True, True, True, True, False, False]
    assert [line is not None for line in lines] == [False] * 6 + [True] + [False] * 2
    line = lines[6]
    assert line is not None
    assert (line["step"], line["rank"]) == (47, 3)
    assert line["trace"] == "traces/attempt-0002-rank-00003.json.gz"
    assert line["summary"] == summarize(tmp_path / line["trace"]).to_dict()
    assert line["summary"]["steps"]["num_steps"] == 4
    assert sorted(path.name for path in (tmp_path / "traces").iterdir()) == [
        "attempt-0002-rank-00003-table.txt",
        "attempt-0002-rank-00003.json.gz",
    ]
    assert "aten::addmm" in (tmp_path / "traces/attempt-0002-rank-00003-table.txt").read_text()
    with gzip.open(tmp_path / line["trace"]) as file:
        assert "traceEvents" in json.load(file)


@pytest.mark.parametrize("num_steps", [1, 2, 3])
def test_step_profiler_traces_the_last_step_of_a_very_short_run(tmp_path: Path, num_steps: int) -> None:
    job = _Job()
    profiler = _profiler(tmp_path, num_steps)
    profiler.start()
    lines = []
    for _ in range(num_steps):
        job.step()
        lines.append(profiler.step())
    line = lines[-1]
    assert line is not None
    assert line["step"] == num_steps
    assert line["summary"]["steps"]["num_steps"] == 1


@pytest.mark.parametrize("num_done", [0, 2, 4])
def test_step_profiler_that_is_stopped_early_writes_no_trace(tmp_path: Path, num_done: int) -> None:
    job = _Job()
    profiler = _profiler(tmp_path, num_steps=6)
    profiler.start()
    for _ in range(num_done):
        job.step()
        assert profiler.step() is None
    profiler.stop()
    assert not profiler.is_tracing
    assert list((tmp_path / "traces").iterdir()) == []
    again = _profiler(tmp_path, num_steps=1)
    again.start()
    job.step()
    assert again.step() is not None


def test_step_profiler_that_cannot_create_its_directory_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "traces").write_text("in the way")
    with pytest.raises(ProfileError, match="cannot be created"):
        _profiler(tmp_path, num_steps=5).start()


def test_step_profiler_that_cannot_save_stops_and_training_continues(tmp_path: Path) -> None:
    job = _Job()
    profiler = _profiler(tmp_path, num_steps=1)
    profiler.start()
    (tmp_path / "traces").rmdir()
    job.step()
    with pytest.raises(ProfileError, match="profile up to step 1 is lost"):
        profiler.step()
    job.step()
    assert profiler.step() is None


def _traced(tmp_path: Path, device: str) -> tuple[Path, Any]:
    job = _Job(device)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
    job.step()
    with profile(activities=activities, schedule=ProfileSchedule(0, 1, 3).action, acc_events=True) as profiler:
        for _ in range(4):
            job.step()
            profiler.step()
    trace = tmp_path / "trace.json"
    profiler.export_chrome_trace(str(trace))
    return trace, profiler.key_averages()


def _assert_operators_agree(summary: TraceSummary, averages: Any) -> None:
    """Check that each operator of the summary has the values of `key_averages`."""
    expected = {row.key: row for row in averages if row.device_type.name == "CPU" and not row.is_user_annotation}
    assert len(summary.operators) == 30
    for row in summary.operators:
        assert row.count == expected[row.name].count
        assert row.self_us == pytest.approx(expected[row.name].self_cpu_time_total, rel=1e-2)
        assert row.total_us == pytest.approx(expected[row.name].cpu_time_total, rel=1e-2)
    assert summary.operators[0].self_us > 0


def test_operators_agree_with_key_averages(tmp_path: Path) -> None:
    trace, averages = _traced(tmp_path, "cpu")
    summary = summarize(trace)
    _assert_operators_agree(summary, averages)
    named = {row.key for row in averages if not row.is_user_annotation}
    timeline = read(trace, scan(trace))
    assert {name for kind, name in zip(timeline.kinds, timeline.names, strict=True) if kind is Kind.OPERATOR} == named
    assert sum(row.time_us for row in summary.operator_categories) == pytest.approx(
        sum(row.self_cpu_time_total for row in averages if not row.is_user_annotation), rel=1e-6
    )
    steps = next(row for row in averages if row.key == "ProfilerStep*")
    assert summary.steps is not None
    assert summary.steps.num_steps == steps.count == 3
    assert sum(summary.steps.times_us) == pytest.approx(steps.cpu_time_total)


@pytest.mark.gpu
def test_kernels_and_operators_agree_with_key_averages_on_a_gpu(tmp_path: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    trace, averages = _traced(tmp_path, "cuda")
    summary = summarize(trace)
    _assert_operators_agree(summary, averages)
    expected = {row.key: row for row in averages if row.device_type.name == "CUDA" and not row.is_user_annotation}
    assert summary.kernels is not None
    assert summary.devices is not None
    assert summary.num_kernel_names == len(expected)
    assert sum(row.time_us for row in summary.kernel_categories or ()) == pytest.approx(
        sum(row.self_device_time_total for row in expected.values()), rel=1e-6
    )
    assert summary.devices[0].name == torch.cuda.get_device_name(0)
    assert 0 < summary.devices[0].busy_us < summary.span_us


@pytest.mark.gpu
def test_step_profiler_on_a_gpu_traces_only_the_kernels_of_its_steps(tmp_path: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    job = _Job("cuda")
    profiler = _profiler(tmp_path, num_steps=6, device_type="cuda")
    profiler.start()
    lines = []
    for _ in range(6):
        job.step()
        lines.append(profiler.step())
    line = lines[-1]
    assert line is not None
    summary = line["summary"]
    assert summary["steps"]["num_steps"] == 3
    assert summary["devices"][0]["num_kernels"] == summary["host"]["num_launches"] > 0
    assert "Self CUDA" in (tmp_path / "traces/attempt-0002-rank-00003-table.txt").read_text()
