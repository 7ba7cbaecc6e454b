"""A journal file, and the lines of an attempt's steps: losses, system samples, evaluations, checkpoints."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.dashboard_spec import MAX_LENGTH, STEPS_PER_EVALUATION, AttemptSpec, RunSpec, predictions_path

MEAN_TOKENS = 170.75


class Lines:
    """Writes numbered lines to one journal file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._lines: list[str] = []

    def add(self, t: float, kind: str, **fields: Any) -> None:
        """Append a line."""
        line = {"n": len(self._lines) + 1, "t": t, "kind": kind, **fields}
        self._lines.append(json.dumps(line))

    def save(self) -> None:
        """Write the file."""
        self._path.write_text("".join(line + "\n" for line in self._lines), encoding="utf-8")


def write_steps(
    lines: Lines, spec: RunSpec, number: int, attempt: AttemptSpec, generator: np.random.Generator
) -> float:
    t = attempt.started_at + 8.0
    next_sample = t
    for step, fields in _steps(spec, attempt, generator):
        t += fields["step_time_s"]
        lines.add(t, "step", step=step, **fields)
        while next_sample <= t:
            lines.add(next_sample, "system", **sample_of(0, spec, generator))
            next_sample += 0.25
        if step % STEPS_PER_EVALUATION == 0:
            t += 1.2
            scores = _scores(spec, step, generator)
            predictions = predictions_path(number, step) if spec.answers else None
            lines.add(t, "evaluation", step=step, split="dev", eval_time_s=1.2, predictions=predictions, **scores)
            lines.add(
                t + 0.3,
                "checkpoint",
                step=step,
                path=f"checkpoints/step-{step:08d}",
                bytes=1_306_718_208,
                save_time_s=0.8,
                blocked_time_s=0.03,
                reason="final" if step == spec.num_steps else "interval",
            )
            t += 0.3
    return t


def _steps(spec: RunSpec, attempt: AttemptSpec, generator: np.random.Generator) -> Iterator[tuple[int, dict[str, Any]]]:
    warmup = spec.num_steps * 0.1
    for step in range(attempt.first_step, attempt.last_step + 1):
        is_warmup = step < attempt.first_step + 5
        slow = 40.0 if step == attempt.first_step else 4.0 if is_warmup else 1.0
        noise = float(generator.gamma(40.0, 1 / 40.0))
        tokens = round(MEAN_TOKENS * spec.global_batch_size * noise)
        yield (
            step,
            {
                "epoch": (step - 1) * 2 // spec.num_steps,
                "samples_seen": step * spec.global_batch_size,
                "loss": 0.95 + 5.0 * float(np.exp(-step / 30.0)) + 0.12 * float(generator.normal()),
                "grad_norm": 3.0 + 2.0 * float(generator.random()),
                "learning_rate": 4e-5 * min(step / warmup, (spec.num_steps - step) / (spec.num_steps - warmup)),
                "step_time_s": spec.step_time_s * slow * noise,
                "data_time_s": 0.0004 * noise,
                "num_features": spec.global_batch_size,
                "num_tokens": tokens,
                "num_padded_tokens": MAX_LENGTH * spec.global_batch_size,
                "peak_memory_bytes": 11 * 2**30 if spec.device_type == "cuda" else None,
                "is_warmup": is_warmup,
                "max_rank_tokens": round(1.03 * tokens / spec.world_size),
                "mean_rank_tokens": tokens / spec.world_size,
                "peak_reserved_bytes": 13 * 2**30 if spec.device_type == "cuda" else None,
            },
        )


def _scores(spec: RunSpec, step: int, generator: np.random.Generator) -> dict[str, Any]:
    share = 1.0 - 0.55 * float(np.exp(-4.0 * step / spec.num_steps)) + 0.002 * float(generator.normal())
    return {"em": 82.0 * share, "f1": 89.2 * share, "loss": None, "num_examples": 10_570, "num_features": 10_784}


def sample_of(node: int, spec: RunSpec, generator: np.random.Generator) -> dict[str, Any]:
    gpus = [
        {
            "index": index,
            "utilization_percent": 94.0 + 4.0 * float(generator.random()),
            "memory_bytes": 12 * 2**30,
            "power_w": 540.0,
        }
        for index in range(spec.world_size // spec.num_nodes if spec.device_type == "cuda" else 0)
    ]
    cpu_percent = 30.0 + 12.0 * float(generator.random())
    return {"node_rank": node, "cpu_percent": cpu_percent, "memory_bytes": 9 * 2**30, "gpus": gpus}
