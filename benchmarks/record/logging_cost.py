"""Time on the training thread to record a step while the writer threads run: microseconds, p50 and p99.

Steps are recorded as in the trainer, after a few milliseconds of computation each, to a real journal on a real disk.
For comparison, `nothing` reads the clock until ten microseconds have passed, which shows how much the machine itself
delays a thread.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.support.machine import machine_facts
from elasticqa.config.batch_plan import BatchPlan
from elasticqa.config.train_config import TrainConfig
from elasticqa.run.journal import FeatureLog, Journal
from elasticqa.run.metrics import StepMetrics
from elasticqa.run.recorder import Recorder
from elasticqa.run.tensorboard import TensorBoardLog
from elasticqa.training.trainer import settle

_IDS = list(range(24))
_NOTHING_S = 10e-6


def _metrics(step: int) -> StepMetrics:
    return StepMetrics(
        step=step, epoch=0, samples_seen=24 * step, loss=1.25, grad_norm=0.5, learning_rate=3e-5, step_time_s=0.01,
        data_time_s=0.001, num_features=24, num_tokens=4096, num_padded_tokens=9216, peak_memory_bytes=None,
        is_warmup=False,
    )  # fmt: skip


def _wait(_: StepMetrics) -> None:
    end = time.perf_counter() + _NOTHING_S
    while time.perf_counter() < end:
        pass


def costs_us(note: Callable[[StepMetrics], None], num_steps: int, step_s: float) -> list[float]:
    """Return the time to record each step, in microseconds.

    Args:
        note: records a step.
        num_steps: number of steps.
        step_s: seconds of torch computation before each.
    """
    matrix = torch.rand(256, 256)
    result = []
    for step in range(1, num_steps + 1):
        metrics = _metrics(step)
        end = time.perf_counter() + step_s
        while time.perf_counter() < end:
            torch.mm(matrix, matrix)
        began = time.perf_counter()
        note(metrics)
        result.append(1e6 * (time.perf_counter() - began))
    return result


def measure(folder: Path, num_steps: int, step_s: float) -> dict[str, list[float]]:
    """Return the times for nothing, for the journal alone, and for all that is recorded of a step."""
    journal, feature_log = Journal(folder, 1, 0), FeatureLog(folder, 1, 0)

    def journal_only(metrics: StepMetrics) -> None:
        feature_log.write(metrics.step, _IDS)
        journal.write("step", vars(metrics))

    tensorboard = TensorBoardLog(folder / "tensorboard")
    recorder = Recorder(
        config=TrainConfig(),
        plan=BatchPlan(24 * num_steps, 24, num_steps, 2 * num_steps),
        journal=journal,
        tensorboard=tensorboard,
        feature_log=feature_log,
        is_main=True,
    )

    def everything(metrics: StepMetrics) -> None:
        recorder.log_features(metrics.step, _IDS)
        recorder.log_step(metrics)

    settle()
    result = {
        "nothing": costs_us(_wait, num_steps, step_s),
        "journal": costs_us(journal_only, num_steps, step_s),
        "all": costs_us(everything, num_steps, step_s),
    }
    tensorboard.close()
    feature_log.close()
    journal.close()
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.record.logging_cost", description=__doc__)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--step-ms", type=float, default=5.0)
    parser.add_argument("--folder", type=Path, help="on the file system to test; default: that of temporary files")
    parser.add_argument("--results", type=Path)
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        measured = measure(Path(folder), options.steps, options.step_ms / 1e3)
    results: list[dict[str, Any]] = [
        {
            "measurement": f"logging_cost_{what}",
            "steps": options.steps,
            "step_ms": options.step_ms,
            **{f"p{level}_us": round(float(np.percentile(costs, level)), 2) for level in (50, 99)},
            "max_us": round(max(costs), 1),
            **machine_facts("benchmarks.record.logging_cost"),
        }
        for what, costs in measured.items()
    ]
    print(json.dumps(results, indent=1))
    if options.results is not None:
        options.results.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
