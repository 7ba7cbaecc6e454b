"""Run directories with journals, written for tests and screenshots of the pages."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.support.dashboard_spec import (
    STEPS_PER_EVALUATION,
    AttemptSpec,
    RunSpec,
    config_of,
    hosts_of,
    predictions_path,
    ulid,
)
from tests.support.dashboard_steps import Lines, sample_of, write_steps

__all__ = ["AttemptSpec", "Lines", "RunSpec", "ulid", "write_run"]


def write_run(runs_dir: Path, spec: RunSpec) -> None:
    """Write a run directory with the journals of all its attempts."""
    run_dir = runs_dir / spec.run_id
    generator = np.random.default_rng(spec.seed)
    for number, attempt in enumerate(spec.attempts, start=1):
        size, nodes = attempt.world_size or spec.world_size, attempt.num_nodes or spec.num_nodes
        _write_attempt(run_dir, replace(spec, world_size=size, num_nodes=nodes), number, attempt, generator)
    if spec.tags:
        notes = Lines(run_dir / "annotations.jsonl")
        for tag in spec.tags:
            notes.add(spec.attempts[0].started_at, "tag", value=tag)
        notes.save()


def _write_attempt(
    run_dir: Path, spec: RunSpec, number: int, attempt: AttemptSpec, generator: np.random.Generator
) -> None:
    hosts = hosts_of(spec)
    lines = Lines(run_dir / "journal" / f"attempt-{number:04d}-node-00000.jsonl")
    start = attempt.started_at
    lines.add(
        start,
        "attempt",
        schema_version=1,
        run_id=spec.run_id,
        attempt=number,
        node_rank=0,
        provenance=spec.provenance,
        name=spec.name,
        config=config_of(spec),
        world_size=spec.world_size,
        num_nodes=spec.num_nodes,
        host=hosts[0],
        software={"python": "3.11.9", "torch": spec.torch, "cuda": "13.0", "transformers": "5.24.0"},
        git={"commit": "4f2c9d1e8b7a", "is_dirty": False},
        scheduler={"kind": "slurm", "job_id": "4711", "submitted_at": start - 42.0, "started_at": start - 2.0},
        command=["python", "-m", "elasticqa.training.main", "--recipe", spec.recipe],
        pid=4242,
        restart_count=0,
    )
    lines.add(start + 1.0, "hosts", hosts=hosts)
    lines.add(
        start + 8.0,
        "setup",
        dataset={"name": "squad", "num_train_features": spec.num_steps * spec.global_batch_size // 2},
        model={
            "name": "bert-base-uncased",
            "model_type": "bert",
            "num_parameters": 108_893_186,
            "flops_per_token": 6 * 85_056_002,
        },
        num_steps=spec.num_steps,
        steps_per_epoch=spec.num_steps // 2,
        start_step=attempt.first_step - 1,
        resumed_from=f"checkpoints/step-{attempt.first_step - 1:08d}" if attempt.first_step > 1 else None,
        precision="bf16" if spec.device_type == "cuda" else "fp32",
        attention="packed",
        setup_time_s=8.0,
    )
    if attempt.first_step > 1:
        message = f"resumed from step {attempt.first_step - 1}"
        lines.add(start + 8.0, "event", name="resume", message=message, data={"step": attempt.first_step - 1})
    end = write_steps(lines, spec, number, attempt, generator)
    if spec.profile is not None and number == len(spec.attempts):
        _write_trace(run_dir, lines, spec, number, end)
    if spec.answers:
        _write_answers(run_dir, spec, number, attempt)
    _write_end(lines, attempt, start, end)
    lines.save()
    for node in range(1, spec.num_nodes):
        _write_other_node(run_dir, spec, number, attempt, node, end)


def _write_answers(run_dir: Path, spec: RunSpec, number: int, attempt: AttemptSpec) -> None:
    content = "".join(json.dumps(answer, ensure_ascii=False) + "\n" for answer in spec.answers)
    for step in range(attempt.first_step, attempt.last_step + 1):
        if step % STEPS_PER_EVALUATION == 0:
            path = run_dir / predictions_path(number, step)
            path.parent.mkdir(exist_ok=True)
            path.write_text(content, encoding="utf-8")


def _write_trace(run_dir: Path, lines: Lines, spec: RunSpec, number: int, t: float) -> None:
    trace = f"traces/attempt-{number:04d}-rank-00000.json.gz"
    lines.add(t, "profile", step=spec.attempts[-1].last_step, rank=0, summary=spec.profile, trace=trace)
    (run_dir / "traces").mkdir()
    (run_dir / trace).write_bytes(gzip.compress(b'{"traceEvents": []}'))
    (run_dir / trace.replace(".json.gz", "-table.txt")).write_text("Name  Self CPU\n", encoding="utf-8")


def _write_end(lines: Lines, attempt: AttemptSpec, start: float, end: float) -> None:
    if attempt.status is None:
        return
    if attempt.status == "preempted":
        lines.add(end, "event", name="signal", message="SIGUSR1: time limit near", data={"signal": "SIGUSR1"})
    lines.add(
        end + 0.5,
        "end",
        status=attempt.status,
        reason=attempt.reason,
        step=attempt.last_step,
        samples_seen=None,
        wall_clock_s=end + 0.5 - start,
        train_time_s=end - start - 9.0,
        final_loss=0.9955,
        peak_memory_bytes=11 * 2**30,
    )


def _write_other_node(run_dir: Path, spec: RunSpec, number: int, attempt: AttemptSpec, node: int, end: float) -> None:
    lines = Lines(run_dir / "journal" / f"attempt-{number:04d}-node-{node:05d}.jsonl")
    head = {"schema_version": 1, "run_id": spec.run_id, "attempt": number, "node_rank": node}
    facts = {"world_size": spec.world_size, "num_nodes": spec.num_nodes, "host": hosts_of(spec)[node]}
    lines.add(attempt.started_at, "attempt", **head, provenance=spec.provenance, config=config_of(spec), **facts)
    generator = np.random.default_rng(node)
    for t in np.arange(attempt.started_at + 8.0, end, 0.25):
        lines.add(float(t), "system", **sample_of(node, spec, generator))
    lines.save()
