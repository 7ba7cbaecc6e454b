"""Specification of a run to write, and its config, hosts and file names."""

from dataclasses import dataclass, field
from typing import Any

MAX_LENGTH = 384
STEPS_PER_EVALUATION = 50


@dataclass(frozen=True)
class AttemptSpec:
    """One attempt: its steps and how it ended."""

    first_step: int
    last_step: int
    started_at: float
    status: str | None = "finished"
    """None: the attempt was killed, its journal has no end."""
    reason: str = "all steps done"
    world_size: int | None = None
    """None: that of the run; the same for the nodes."""
    num_nodes: int | None = None


@dataclass(frozen=True)
class RunSpec:
    """A run to write."""

    run_id: str
    attempts: tuple[AttemptSpec, ...]
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


def ulid(number: int) -> str:
    """Return a valid ULID with a fixed time stamp and the number in its last characters."""
    digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    tail = ""
    for _ in range(16):
        number, digit = divmod(number, 32)
        tail = digits[digit] + tail
    return "01KB000000" + tail


def hosts_of(spec: RunSpec) -> list[dict[str, Any]]:
    """Return the facts of each node in the journal."""
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


def config_of(spec: RunSpec) -> dict[str, Any]:
    """Return the recorded settings."""
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


def predictions_path(number: int, step: int) -> str:
    """Return the path of the predictions of an evaluation in the run directory."""
    return f"predictions/attempt-{number:04d}-step-{step:08d}-dev.jsonl"
