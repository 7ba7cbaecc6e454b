"""Interleaved measurement: all variants start together, each in its own processes, and take turns.

A variant that fails, or is not ready in time, is reported and left out; the others continue.
"""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.support.setup import Data, facts, model_name, write

PACKAGES = {"lightning": "lightning", "hf": "accelerate"}
"""First word of a variant -> package that it needs besides transformers."""
ROUND_LIMIT_S = 120.0
MIN_STEPS = 4
SETTLE_STEPS = 3


@dataclass(frozen=True)
class Case:
    """One variant at one size."""

    variant: str
    model: str
    global_batch_size: int
    data: Data
    world_size: int = 1
    warm_up_steps: int = 12

    @property
    def title(self) -> str:
        """Name of the case on the terminal."""
        return f"{self.variant} {self.world_size} x {self.global_batch_size // self.world_size}"


@dataclass(frozen=True)
class StepsRequest:
    """A request to a worker: steps that are not measured, then steps that are."""

    settle_steps: int
    num_steps: int


@dataclass(frozen=True)
class Report:
    """Measurement of one rank."""

    seconds: float
    peak_memory_bytes: int | None
    peak_reserved_bytes: int | None


class VariantError(RuntimeError):
    """A variant failed."""


@dataclass
class Workers:
    """The processes of a case, one per rank."""

    case: Case
    log: Path
    rates: list[float] = field(default_factory=list)
    peaks: list[tuple[int, int]] = field(default_factory=list)
    num_steps: int = MIN_STEPS

    def __post_init__(self) -> None:
        """Start the ranks."""
        self._connections: list[Connection[Any, Any]] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        for rank in range(self.case.world_size):
            ours, theirs = Pipe()
            with self.log.open("ab") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", "benchmarks.training.worker", str(theirs.fileno())],
                    env=_environment(rank, self.case.world_size, port),
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            theirs.close()
            self._connections.append(ours)
            self._processes.append(process)

    def begin(self) -> None:
        """Start the warm-up of all ranks."""
        for connection in self._connections:
            connection.send(self.case)

    def wait_until_ready(self, deadline: float) -> None:
        """Wait until all ranks have warmed up."""
        self._receive(deadline)

    def run(self, num_steps: int, settle_steps: int) -> float:
        """Return the seconds of a number of steps on the slowest rank."""
        for connection in self._connections:
            connection.send(StepsRequest(settle_steps, num_steps))
        reports = self._receive(time.monotonic() + ROUND_LIMIT_S)
        self.peaks += [
            (report.peak_memory_bytes, report.peak_reserved_bytes or 0)
            for report in reports
            if report.peak_memory_bytes is not None
        ]
        return max(report.seconds for report in reports)

    def measure(self, settle_steps: int) -> None:
        """Add a repeat."""
        seconds = self.run(self.num_steps, settle_steps)
        self.rates.append(self.num_steps * self.case.global_batch_size / seconds)

    def stop(self) -> None:
        """Stop the processes, and the processes that they started."""
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            try:
                process.wait(timeout=5 if process.poll() is None and self.rates else 0.1)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _receive(self, deadline: float) -> list[Report]:
        answers = []
        for connection in self._connections:
            if not connection.poll(max(0.0, deadline - time.monotonic())):
                raise VariantError("no answer in time")
            try:
                answers.append(connection.recv())
            except (EOFError, ConnectionResetError) as error:
                raise VariantError(self._last_log_line()) from error
        return answers

    def _last_log_line(self) -> str:
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1][:300] if lines else "ended without output"


def _environment(rank: int, world_size: int, port: int) -> dict[str, str]:
    result = {**os.environ, "TOKENIZERS_PARALLELISM": "false"}
    if world_size == 1:
        # The Trainer would use all visible GPUs in one process.
        result["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        return result
    ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world_size, "LOCAL_WORLD_SIZE": world_size}
    ranks |= {"GROUP_RANK": 0, "GROUP_WORLD_SIZE": 1, "MASTER_PORT": port}
    return result | {name: str(value) for name, value in ranks.items()} | {"MASTER_ADDR": "127.0.0.1"}


@dataclass(frozen=True)
class Pace:
    """Number and length of the repeats."""

    repeats: int
    seconds: float
    """Minimum of a repeat."""
    ready_within_s: float
    """Limit for elasticqa, and again for the other trainers."""
    settle_steps: int = SETTLE_STEPS
    """Unmeasured steps before each repeat, which allocate the memory that was freed."""


def measure(cases: Sequence[Case], pace: Pace, results: Path) -> list[dict[str, Any]]:
    """Return one measurement per case, without the cases that failed; write them after each repeat.

    Args:
        cases: to measure in turns.
        pace: number and length of the repeats.
        results: file to write.
    """
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as logs:
        workers = []
        for number, case in enumerate(cases):
            if (package := _missing(case.variant)) is None:
                workers.append(Workers(case, Path(logs) / f"{number}.log"))
            else:
                print(f"{case.title}: left out, {package} is not installed", flush=True)
        try:
            workers = _warm_up(workers, pace, failures)
            for number in range(pace.repeats):
                workers = [each for each in workers if _try(each, lambda one: one.measure(pace.settle_steps), failures)]
                write(results, [_measurement(each) for each in workers])
                print(f"repeat {number + 1}: " + _rates(workers), flush=True)
        finally:
            for each in workers:
                each.stop()
    for failure in failures:
        print(f"FAILED {failure}", flush=True)
    return [_measurement(each) for each in workers]


def _missing(variant: str) -> str | None:
    package = PACKAGES.get(variant.partition("_")[0])
    return package if package is not None and importlib.util.find_spec(package) is None else None


def _warm_up(workers: list[Workers], pace: Pace, failures: list[str]) -> list[Workers]:
    """Warm up elasticqa, then the others; set the steps of a repeat and return the workers that are ready."""

    def prepare(each: Workers) -> None:
        each.wait_until_ready(began + pace.ready_within_s)
        print(f"{each.case.title}: ready after {time.monotonic() - began:.0f} s", flush=True)

    def gauge(each: Workers) -> None:
        seconds = each.run(MIN_STEPS, pace.settle_steps) / MIN_STEPS if pace.seconds else 0.0
        each.num_steps = max(MIN_STEPS, round(pace.seconds / seconds)) if seconds else 1

    ready = []
    # CUDA graphs keep their memory, so elasticqa goes first; the others free theirs before the next one starts.
    for is_captured in (True, False):
        group = [each for each in workers if each.case.variant.startswith("elasticqa") == is_captured]
        began = time.monotonic()
        for each in group:
            each.begin()
        ready += [each for each in group if _try(each, prepare, failures)]
    return [each for each in ready if _try(each, gauge, failures)]


def _try(each: Workers, work: Any, failures: list[str]) -> bool:
    """Do the work and return True; if the variant fails, stop it, note the failure and return False."""
    try:
        work(each)
    except VariantError as error:
        each.stop()
        failures.append(f"{each.case.title}: {error}")
        print(f"FAILED {failures[-1]}\n{each.log.read_text(errors='replace')[-3000:]}", flush=True)
        return False
    return True


def _rates(workers: list[Workers]) -> str:
    return ", ".join(f"{each.case.title} {each.rates[-1]:,.1f}/s" for each in workers)


def _measurement(each: Workers) -> dict[str, Any]:
    by_rank: dict[str, int] = defaultdict(int)
    for allocated, reserved in each.peaks:
        by_rank["allocated"] = max(by_rank["allocated"], allocated)
        by_rank["reserved"] = max(by_rank["reserved"], reserved)
    return {
        "variant": each.case.variant,
        "model": model_name(each.case.model),
        "global_batch_size": each.case.global_batch_size,
        "world_size": each.case.world_size,
        "features_per_s": [round(rate, 2) for rate in each.rates],
        "steps_a_repeat": each.num_steps,
        "peak_memory_bytes": by_rank.get("allocated"),
        "peak_reserved_bytes": by_rank.get("reserved"),
        **facts(),
    }


def summary(measurements: list[dict[str, Any]]) -> str:
    """Return one line per measurement, for the terminal."""
    return "\n".join(
        f"{each['variant']:24} {each['world_size']} GPU  batch {each['global_batch_size']:4} "
        f"{median(each['features_per_s']):9,.1f} features/s"
        for each in measurements
    )
