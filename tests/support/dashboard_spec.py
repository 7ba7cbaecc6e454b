"""What a run of the tests is like, and the facts that follow from it."""

from dataclasses import dataclass, field
from typing import Any

MAX_LENGTH = 384
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
    world_size: int | None = None
    """None: the run's, as for the nodes."""
    num_nodes: int | None = None


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


def ulid(number: int) -> str:
    """Return a valid ULID whose time stamp is fixed and whose tail tells the number."""
    digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    tail = ""
    for _ in range(16):
        number, digit = divmod(number, 32)
        tail = digits[digit] + tail
    return "01KB000000" + tail


def hosts_of(spec: RunSpec) -> list[dict[str, Any]]:
    """Return what the journal says of each node."""
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
    """Return where the predictions of an evaluation lie in the run directory."""
    return f"predictions/attempt-{number:04d}-step-{step:08d}-dev.jsonl"
