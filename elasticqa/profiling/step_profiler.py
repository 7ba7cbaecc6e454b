"""Profile some training steps with torch.profiler: a trace for Perfetto, a table of operators, and a summary."""

import gzip
import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerAction, ProfilerActivity, profile

from elasticqa.profiling.trace.scan import TraceError
from elasticqa.profiling.trace.summary import summarize

WAIT_STEPS = 2
WARMUP_STEPS = 100
MIN_WARMUP_STEPS = 10
"""Minimum for an attempt that resumes late: allocator, autotuning and caches must warm up."""
ACTIVE_STEPS = 10

_TABLE_ROWS = 50
_TABLE_NAME_CHARS = 80


class ProfileError(RuntimeError):
    """The trace could not be written or read back; training is not affected."""


@dataclass(frozen=True)
class ProfileSchedule:
    """Number of steps that are not profiled, then profiled but discarded, then traced."""

    wait: int
    warmup: int
    active: int

    @property
    def num_steps(self) -> int:
        """Number of steps until the trace is complete."""
        return self.wait + self.warmup + self.active

    def action(self, step: int) -> ProfilerAction:
        """Return the profiler's action at a step, counted from 0: the ``schedule`` of torch.profiler."""
        if step < self.wait or step >= self.num_steps:
            return ProfilerAction.NONE
        if step < self.wait + self.warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if step < self.num_steps - 1 else ProfilerAction.RECORD_AND_SAVE


def profile_schedule(num_steps: int, step: int = 0) -> ProfileSchedule:
    """Return the schedule of an attempt that starts at ``step``: it traces steps 102 to 111 of the run if it can.

    An attempt that starts too late for these steps traces after a warm-up of 10. If too few steps are left, shorten
    first the warm-up (to 1 step), then the active steps (to 1), then the wait (to 0), then the warm-up (to 0).

    >>> profile_schedule(500)
    ProfileSchedule(wait=2, warmup=100, active=10)
    >>> profile_schedule(500, step=60)
    ProfileSchedule(wait=2, warmup=40, active=10)
    >>> profile_schedule(500, step=200)
    ProfileSchedule(wait=2, warmup=10, active=10)
    >>> profile_schedule(6)
    ProfileSchedule(wait=2, warmup=1, active=3)

    Raises:
        ValueError: no step is left.
    """
    left = num_steps - step
    if left < 1:
        raise ValueError(
            f"step={step} of num_steps={num_steps} leaves nothing to profile: at least one step must remain"
        )
    active = min(ACTIVE_STEPS, max(1, left - WAIT_STEPS - 1))
    before = left - active
    wanted = max(MIN_WARMUP_STEPS, WARMUP_STEPS - step)
    warmup = min(wanted, max(before - WAIT_STEPS, min(before, 1)))
    return ProfileSchedule(min(WAIT_STEPS, before - warmup), warmup, active)


class StepProfiler:
    """Profiles this rank once, by `profile_schedule`.

    Keeps only the active steps in memory. Writes ``traces/attempt-0001-rank-00000.json.gz`` and ``...-table.txt``,
    each atomically.
    """

    def __init__(self, run_dir: Path, *, attempt: int, rank: int, step: int, num_steps: int, device_type: str) -> None:
        self.schedule = profile_schedule(num_steps, step)
        self._step = step
        self._rank = rank
        self._run_dir = run_dir
        self._trace = run_dir / "traces" / f"attempt-{attempt:04d}-rank-{rank:05d}.json.gz"
        self._is_cuda = device_type == "cuda"
        self._num_done = 0
        self._profile: profile | None = None
        self._exit = ExitStack()

    @property
    def is_tracing(self) -> bool:
        """Whether the current step is profiled, in warm-up or active, and therefore slower."""
        return self._profile is not None and self.schedule.action(self._num_done) is not ProfilerAction.NONE

    def start(self) -> None:
        """Start, before the first step.

        Raises:
            ProfileError: traces cannot be written.
        """
        try:
            self._trace.parent.mkdir(exist_ok=True)
        except OSError as error:
            raise ProfileError(f"{self._trace.parent}: cannot be created ({error.strerror})") from error
        self._drain()
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._is_cuda else [])]
        # acc_events avoids a warning of torch 2.11 about a second cycle, although the schedule has only one.
        profiler = profile(activities=activities, schedule=self.schedule.action, acc_events=True)
        self._profile = self._exit.enter_context(profiler)

    def step(self) -> dict[str, Any] | None:
        """Count a finished step; after the last of the schedule, write trace and table and return the `profile` line.

        Raises:
            ProfileError: trace or table could not be written.
        """
        if self._profile is None:
            return None
        self._num_done += 1
        if self._num_done == self.schedule.wait + self.schedule.warmup:
            self._drain()
        self._profile.step()
        if self._num_done < self.schedule.num_steps:
            return None
        finished = self._profile
        self.stop()
        try:
            return self._save(finished)
        except (OSError, TraceError) as error:
            raise ProfileError(f"profile up to step {self._step + self._num_done} is lost: {error}") from error

    def stop(self) -> None:
        """Stop profiling. An unfinished schedule writes no trace, so that a run that was asked to stop ends quickly."""
        self._profile = None
        self._exit.close()

    def _drain(self) -> None:
        """Wait for the device; otherwise the trace contains kernels of earlier steps."""
        if self._is_cuda:
            torch.cuda.synchronize()

    def _save(self, finished: profile) -> dict[str, Any]:
        table = self._trace.with_name(self._trace.name.removesuffix(".json.gz") + "-table.txt")
        sort_by = "self_device_time_total" if self._is_cuda else "self_cpu_time_total"
        averages = finished.key_averages()
        text = averages.table(sort_by=sort_by, row_limit=_TABLE_ROWS, max_name_column_width=_TABLE_NAME_CHARS)
        staged = table.with_suffix(".partial")
        staged.write_text(text, encoding="utf-8")
        staged.replace(table)
        # Write beside the trace: the system's temporary directory is small on many compute nodes.
        plain = self._trace.with_suffix(".partial")
        packed = self._trace.with_suffix(".partial.gz")
        try:
            finished.export_chrome_trace(str(plain))
            with plain.open("rb") as source, gzip.open(packed, "wb", compresslevel=6) as target:
                shutil.copyfileobj(source, target, 1 << 20)
            packed.replace(self._trace)
        finally:
            plain.unlink(missing_ok=True)
            packed.unlink(missing_ok=True)
        return {
            "step": self._step + self._num_done,
            "rank": self._rank,
            "summary": summarize(self._trace).to_dict(),
            "trace": self._trace.relative_to(self._run_dir).as_posix(),
        }
