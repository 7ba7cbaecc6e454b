"""Runs as their journals would tell them, for tests and pictures of the pages."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

MAX_LENGTH = 384
MEAN_TOKENS = 170.75
STEPS_PER_EVALUATION = 50


@dataclass(frozen=True)
class Life:
    """One attempt: the steps it took and how it ended."""

    first_step: int
    last_step: int
    started_at: float
    status: str | None = "finished"
    """None: it went silent."""
    reason: str = "all steps done"


@dataclass(frozen=True)
class RunSpec:
    """A run to be written."""

    run_id: str
    lives: tuple[Life, ...]
    world_size: int = 1
    num_nodes: int = 1
    parallel: str = "ddp"
    device_name: str = "NVIDIA H100 80GB HBM3"
    device_type: str = "cuda"
    recipe: str = "squad"
    name: str | None = None
    tags: tuple[str, ...] = ()
    global_batch_size: int = 24
    num_steps: int = 200
    step_time_s: float = 0.02
    provenance: str = "measured"
    seed: int = 0
    torch: str = "2.13.0"
    settings: dict[str, Any] = field(default_factory=dict)
    profile: dict[str, Any] | None = None
    """Summary of a trace of the last attempt."""
    answers: tuple[dict[str, Any], ...] = ()
    """Lines of the predictions of every evaluation."""


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


def ulid(number: int) -> str:
    """Return a valid ULID whose time stamp is fixed and whose tail tells the number."""
    digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    tail = ""
    for _ in range(16):
        number, digit = divmod(number, 32)
        tail = digits[digit] + tail
    return "01KB000000" + tail


def write_run(runs_dir: Path, spec: RunSpec) -> None:
    """Write a run directory with the journals of all its attempts."""
    run_dir = runs_dir / spec.run_id
    generator = np.random.default_rng(spec.seed)
    for number, life in enumerate(spec.lives, start=1):
        _write_attempt(run_dir, spec, number, life, generator)
    if spec.tags:
        notes = Lines(run_dir / "annotations.jsonl")
        for tag in spec.tags:
            notes.add(spec.lives[0].started_at, "tag", value=tag)
        notes.save()


def _hosts(spec: RunSpec) -> list[dict[str, Any]]:
    is_gpu = spec.device_type == "cuda"
    return [
        {
            "node_rank": node,
            "host_name": f"node{node:02d}",
            "device_type": spec.device_type,
            "device_name": spec.device_name,
            "num_devices": spec.world_size // spec.num_nodes,
            "device_memory_bytes": 80 * 2**30 if is_gpu else None,
            "num_cpus": 16,
            "cpu_name": "Intel(R) Xeon(R) Platinum 8480+",
            "memory_bytes": 128 * 2**30,
            "driver": "580.95.05" if is_gpu else None,
        }
        for node in range(spec.num_nodes)
    ]


def _config(spec: RunSpec) -> dict[str, Any]:
    return {
        "recipe": spec.recipe,
        "name": spec.name,
        "model": "bert-base-uncased",
        "dataset": "squad",
        "max_train_features": None,
        "parallel": spec.parallel,
        "precision": "auto",
        "attention": "packed",
        "epochs": 2,
        "max_steps": None,
        "global_batch_size": spec.global_batch_size,
        "micro_batch_size": 24,
        "max_length": MAX_LENGTH,
        "doc_stride": 128,
        "learning_rate": 4e-5,
        "weight_decay": 0.01,
        "warmup_ratio": 0.1,
        "seed": spec.seed,
        "resume": "auto",
        **spec.settings,
    }


def _write_attempt(run_dir: Path, spec: RunSpec, number: int, life: Life, generator: np.random.Generator) -> None:
    hosts = _hosts(spec)
    lines = Lines(run_dir / "journal" / f"attempt-{number:04d}-node-00000.jsonl")
    start = life.started_at
    lines.add(
        start,
        "attempt",
        schema_version=1,
        run_id=spec.run_id,
        attempt=number,
        node_rank=0,
        provenance=spec.provenance,
        name=spec.name,
        config=_config(spec),
        world_size=spec.world_size,
        num_nodes=spec.num_nodes,
        host=hosts[0],
        software={"python": "3.11.9", "torch": spec.torch, "cuda": "13.0", "transformers": "5.24.0"},
        git={"commit": "4f2c9d1e8b7a", "is_dirty": False},
        scheduler={"kind": "slurm", "job_id": "4711", "submitted_at": start - 42.0, "started_at": start - 2.0},
        command=["python", "-m", "elasticqa.train", "--recipe", spec.recipe],
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
        start_step=life.first_step - 1,
        resumed_from=f"checkpoints/step-{life.first_step - 1:08d}" if life.first_step > 1 else None,
        precision="bf16" if spec.device_type == "cuda" else "fp32",
        attention="packed",
        setup_time_s=8.0,
    )
    if life.first_step > 1:
        message = f"went on from step {life.first_step - 1}"
        lines.add(start + 8.0, "event", name="resume", message=message, data={"step": life.first_step - 1})
    end = _write_steps(lines, spec, number, life, generator)
    if spec.profile is not None and number == len(spec.lives):
        _write_trace(run_dir, lines, spec, number, end)
    if spec.answers:
        _write_answers(run_dir, spec, number, life)
    _write_end(lines, life, start, end)
    lines.save()
    for node in range(1, spec.num_nodes):
        _write_other_node(run_dir, spec, number, life, node, end)


def _write_steps(lines: Lines, spec: RunSpec, number: int, life: Life, generator: np.random.Generator) -> float:
    t = life.started_at + 8.0
    next_sample = t
    for step, fields in _steps(spec, life, generator):
        t += fields["step_time_s"]
        lines.add(t, "step", step=step, **fields)
        while next_sample <= t:
            lines.add(next_sample, "system", **_sample(0, spec, generator))
            next_sample += 0.25
        if step % STEPS_PER_EVALUATION == 0:
            t += 1.2
            scores = _scores(spec, step, generator)
            predictions = _predictions_path(number, step) if spec.answers else None
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


def _steps(spec: RunSpec, life: Life, generator: np.random.Generator) -> Iterator[tuple[int, dict[str, Any]]]:
    warmup = spec.num_steps * 0.1
    for step in range(life.first_step, life.last_step + 1):
        is_warmup = step < life.first_step + 5
        slow = 40.0 if step == life.first_step else 4.0 if is_warmup else 1.0
        noise = float(generator.gamma(40.0, 1 / 40.0))
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
                "num_tokens": round(MEAN_TOKENS * spec.global_batch_size * noise),
                "num_padded_tokens": MAX_LENGTH * spec.global_batch_size,
                "peak_memory_bytes": 11 * 2**30 if spec.device_type == "cuda" else None,
                "is_warmup": is_warmup,
            },
        )


def _predictions_path(number: int, step: int) -> str:
    return f"predictions/attempt-{number:04d}-step-{step:08d}-dev.jsonl"


def _write_answers(run_dir: Path, spec: RunSpec, number: int, life: Life) -> None:
    content = "".join(json.dumps(answer, ensure_ascii=False) + "\n" for answer in spec.answers)
    for step in range(life.first_step, life.last_step + 1):
        if step % STEPS_PER_EVALUATION == 0:
            path = run_dir / _predictions_path(number, step)
            path.parent.mkdir(exist_ok=True)
            path.write_text(content, encoding="utf-8")


def _write_trace(run_dir: Path, lines: Lines, spec: RunSpec, number: int, t: float) -> None:
    trace = f"traces/attempt-{number:04d}-rank-00000.json.gz"
    lines.add(t, "profile", step=spec.lives[-1].last_step, rank=0, summary=spec.profile, trace=trace)
    (run_dir / "traces").mkdir()
    (run_dir / trace).write_bytes(gzip.compress(b'{"traceEvents": []}'))
    (run_dir / trace.replace(".json.gz", "-table.txt")).write_text("Name  Self CPU\n", encoding="utf-8")


def _scores(spec: RunSpec, step: int, generator: np.random.Generator) -> dict[str, Any]:
    share = 1.0 - 0.55 * float(np.exp(-4.0 * step / spec.num_steps)) + 0.002 * float(generator.normal())
    return {"em": 82.0 * share, "f1": 89.2 * share, "loss": None, "num_examples": 10_570, "num_features": 10_784}


def _sample(node: int, spec: RunSpec, generator: np.random.Generator) -> dict[str, Any]:
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


def _write_end(lines: Lines, life: Life, start: float, end: float) -> None:
    if life.status is None:
        return
    if life.status == "preempted":
        lines.add(end, "event", name="signal", message="SIGUSR1: time limit near", data={"signal": "SIGUSR1"})
    lines.add(
        end + 0.5,
        "end",
        status=life.status,
        reason=life.reason,
        step=life.last_step,
        samples_seen=None,
        wall_clock_s=end + 0.5 - start,
        train_time_s=end - start - 9.0,
        final_loss=0.9955,
        peak_memory_bytes=11 * 2**30,
    )


def _write_other_node(run_dir: Path, spec: RunSpec, number: int, life: Life, node: int, end: float) -> None:
    lines = Lines(run_dir / "journal" / f"attempt-{number:04d}-node-{node:05d}.jsonl")
    head = {"schema_version": 1, "run_id": spec.run_id, "attempt": number, "node_rank": node}
    facts = {"world_size": spec.world_size, "num_nodes": spec.num_nodes, "host": _hosts(spec)[node]}
    lines.add(life.started_at, "attempt", **head, provenance=spec.provenance, config=_config(spec), **facts)
    generator = np.random.default_rng(node)
    for t in np.arange(life.started_at + 8.0, end, 0.25):
        lines.add(float(t), "system", **_sample(node, spec, generator))
    lines.save()
