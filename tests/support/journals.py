"""Run directories for tests of the record: lines as the core writes them, any value changed at will."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

START = 1_790_000_000.0


def attempt_line(run_id: str, attempt: int = 1, /, **changes: Any) -> dict[str, Any]:
    """Return line 1 of a journal."""
    line = {
        "kind": "attempt",
        "schema_version": 1,
        "run_id": run_id,
        "attempt": attempt,
        "node_rank": 0,
        "provenance": "measured",
        "name": None,
        "config": {
            "recipe": "demo",
            "model": "tiny",
            "dataset": "demo",
            "parallel": "ddp",
            "precision": "auto",
            "epochs": 2,
            "global_batch_size": 16,
            "seed": 1,
            "name": None,
            "resume": "auto",
        },
        "world_size": 2,
        "num_nodes": 1,
        "host": {"node_rank": 0, "host_name": "n0", "device_type": "cpu", "device_name": "Xeon", "num_devices": 2},
        "software": {"torch": "2.13.0"},
        "git": {"commit": "0" * 40, "is_dirty": False},
        "scheduler": {"kind": "local", "job_id": None, "submitted_at": None, "started_at": None},
        "command": ["elasticqa", "train"],
        "pid": 7,
        "restart_count": 0,
    }
    return line | changes


def setup_line(**changes: Any) -> dict[str, Any]:
    """Return a `setup` line."""
    line = {
        "kind": "setup",
        "dataset": {"name": "demo", "digest": "d", "num_train_features": 100, "num_train_examples": 90},
        "model": {"name": "tiny", "model_type": "bert", "num_parameters": 5_000_000_000},
        "num_steps": 14,
        "start_step": 0,
        "resumed_from": None,
        "precision": "fp32",
        "attention": "packed",
        "setup_time_s": 1.5,
    }
    return line | changes


def step_line(step: int, /, **changes: Any) -> dict[str, Any]:
    """Return a `step` line; the first two steps are warm-up."""
    line = {
        "kind": "step",
        "step": step,
        "epoch": step // 8,
        "samples_seen": 16 * step,
        "loss": 3.0 / step,
        "grad_norm": 0.5,
        "learning_rate": 3e-5,
        "step_time_s": 10.0 if step <= 2 else 0.1 * step,
        "data_time_s": 0.01,
        "num_features": 16,
        "num_tokens": 2000 + step,
        "num_padded_tokens": 3072,
        "peak_memory_bytes": 2**33 + step,
        "is_warmup": step <= 2,
    }
    return line | changes


def evaluation_line(step: int, em: float = 60.0, f1: float = 70.0, **changes: Any) -> dict[str, Any]:
    """Return an `evaluation` line."""
    line = {"kind": "evaluation", "step": step, "split": "dev", "em": em, "f1": f1, "eval_time_s": 2.0}
    return line | changes


def end_line(step: int, /, **changes: Any) -> dict[str, Any]:
    """Return the `end` line of a finished attempt."""
    line = {
        "kind": "end",
        "status": "finished",
        "reason": "all steps done",
        "step": step,
        "samples_seen": 16 * step,
        "wall_clock_s": 50.0,
        "train_time_s": 40.0,
        "final_loss": 0.4,
        "peak_memory_bytes": 2**34,
    }
    return line | changes


def numbered(lines: Iterable[Mapping[str, Any]], first: int = 1, start: float = START) -> bytes:
    """Return lines as the journal has them, one second apart unless they bring their own `n` or `t`."""
    texts = [json.dumps({"n": number, "t": start + number, **line}) + "\n" for number, line in enumerate(lines, first)]
    return "".join(texts).encode()


def journal_path(runs: Path, run_id: str, attempt: int = 1, node_rank: int = 0) -> Path:
    """Return the path of a journal; its directory is created."""
    path = runs / run_id / "journal" / f"attempt-{attempt:04d}-node-{node_rank:05d}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def write_run(runs: Path, run_id: str, num_steps: int = 5) -> Path:
    """Write a finished run of one attempt; return its journal."""
    path = journal_path(runs, run_id)
    steps = [step_line(step) for step in range(1, num_steps + 1)]
    path.write_bytes(
        numbered([attempt_line(run_id), setup_line(), *steps, evaluation_line(num_steps), end_line(num_steps)])
    )
    return path
