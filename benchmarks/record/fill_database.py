"""Fills a database with many runs for `dashboard_speed.py`; the database generates the steps itself."""

import random
from typing import Any

from sqlalchemy import Connection, Engine, Float, Integer, cast, func, insert, literal, select, text, true

from db.engine import migrate, write_locked
from db.models import Attempt, Run, Step

DEVICES = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-PCIE-40GB", "Tesla T4", "Intel(R) Xeon(R) Platinum 8480+")
NOW = 1_800_000_000.0
RUNS_AT_ONCE = 250
_WARMUP = 5


def fill(engine: Engine, num_runs: int, num_steps: int) -> None:
    """Write runs with one attempt each, and their steps.

    Args:
        engine: of a database without runs; it is migrated.
        num_runs: five consecutive runs share a configuration.
        num_steps: sum over all runs.
    """
    migrate(engine)
    generator = random.Random(0)
    each = max(1, num_steps // num_runs)
    with engine.connect() as connection:
        assert not connection.scalar(select(func.count()).select_from(Run)), "the database is not empty"
    for start in range(0, num_runs, RUNS_AT_ONCE):
        numbers = range(start, min(num_runs, start + RUNS_AT_ONCE))
        with write_locked(engine).begin() as connection:
            runs = [run_row(number, each, generator) for number in numbers]
            connection.execute(insert(Run), runs)
            connection.execute(insert(Attempt), [attempt_row(run) for run in runs])
            _insert_steps(connection, runs[0]["run_id"], runs[-1]["run_id"], each)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        # Both databases do this by themselves after a while.
        connection.execute(text("VACUUM ANALYZE" if engine.dialect.name == "postgresql" else "ANALYZE"))


def run_id_of(number: int) -> str:
    """Return an id of the length of a ULID."""
    return f"01KB{number:022d}"


def run_row(number: int, num_steps: int, generator: random.Random) -> dict[str, Any]:
    """Return a finished run; one of eleven is a failed run."""
    group = number // 5
    parallel = ("none", "ddp", "fsdp")[group % 3]
    world_size = 1 if parallel == "none" else 2 ** (1 + group % 3)
    f1 = 80 + 10 * generator.random()
    device = DEVICES[group % len(DEVICES)]
    start = NOW - 600.0 * number
    return {
        "run_id": run_id_of(number),
        "provenance": "measured",
        "name": f"run {number}" if number % 2 else None,
        "tags": ["sweep"] if number % 7 == 0 else [],
        "recipe": ("squad", "baseline-10k", "distributed-10k")[group % 3],
        "model": "bert-base-uncased" if group % 4 else "bert-large-uncased",
        "dataset": "squad",
        "parallel": parallel,
        "precision": "bf16",
        "config": {f"setting_{index}": index * 0.5 for index in range(40)} | {"seed": number},
        "config_digest": f"{group:016x}{0:048x}",
        "status": "finished" if number % 11 else "failed",
        "created_at": start,
        "started_at": start,
        "ended_at": start + 500,
        "last_seen_at": start + 500,
        "num_attempts": 1,
        "world_size": world_size,
        "num_nodes": 1,
        "device_type": "cpu" if "Xeon" in device else "cuda",
        "device_name": device,
        "global_batch_size": 24,
        "num_epochs": 2.0,
        "step": num_steps,
        "num_steps": num_steps,
        "num_train_features": 12 * num_steps,
        "wall_clock_s": 500.0 / world_size * generator.uniform(0.9, 1.1),
        "final_loss": generator.random(),
        "em": f1 - 7,
        "f1": f1,
        "samples_per_s": 1_000.0 * world_size * generator.uniform(0.9, 1.1),
        "tokens_per_s": 170_000.0 * world_size,
        "peak_memory_bytes": 11 * 2**30,
        "peak_reserved_bytes": 12 * 2**30,
        "num_lines": num_steps + 3,
    }


_OF_THE_RUN = (
    *("run_id", "provenance", "name", "status", "config", "started_at", "ended_at", "last_seen_at", "world_size"),
    *("num_nodes", "wall_clock_s", "samples_per_s", "tokens_per_s", "peak_memory_bytes", "peak_reserved_bytes"),
    *("em", "f1"),
)


def attempt_row(run: dict[str, Any]) -> dict[str, Any]:
    """Return the only attempt of a run."""
    return {name: run[name] for name in _OF_THE_RUN} | {
        "attempt": 1,
        "node_rank": 0,
        "hosts": [{"node_rank": 0, "host_name": "node00", "device_name": run["device_name"], "num_devices": 1}],
        "software": {"python": "3.11", "torch": "2.13.0", "cuda": "13.0", "transformers": "5.24.0"},
        "git": {},
        "scheduler": {},
        "setup": {"precision": "bf16", "model": {"flops_per_token": 510_336_012}},
        "command": [],
        "start_step": 0,
        "end_step": run["step"],
        "steady_features": 24 * run["step"],
        "steady_tokens": 4_100 * run["step"],
        "steady_time_s": 0.02 * run["step"],
        "num_timed_steps": max(0, min(1000, run["step"] - _WARMUP)),
        "step_time_p50_s": 0.026,
        "step_time_p95_s": 0.032,
        "data_share": 0.015,
        "padding_factor": 2.25,
        "token_imbalance": 1.01,
    }


def _insert_steps(connection: Connection, first_id: str, last_id: str, num_steps: int) -> None:
    """Insert the steps of the runs between two ids."""
    numbers = select(literal(1, Integer).label("step")).cte("numbers", recursive=True)
    numbers = numbers.union_all(select(numbers.c.step + 1).where(numbers.c.step < num_steps))
    step = numbers.c.step
    real = cast(step, Float)
    values = {
        "run_id": Run.run_id,
        "attempt": literal(1, Integer),
        "step": step,
        "t": Run.started_at + 0.02 * real,
        "epoch": 2 * step // (num_steps + 1),
        "samples_seen": 24 * step,
        "loss": 1.0 + 5.0 / real,
        "grad_norm": 2.0 + (step % 17) / 10.0,
        "learning_rate": literal(4e-5, Float),
        "step_time_s": 0.02 + (step % 13) / 1000.0,
        "data_time_s": literal(0.0004, Float),
        "num_features": literal(24, Integer),
        "num_tokens": 4_000 + step % 200,
        "num_padded_tokens": literal(9_216, Integer),
        "peak_memory_bytes": Run.peak_memory_bytes,
        "is_warmup": step <= _WARMUP,
        "max_rank_tokens": 4_050 + step % 200,
        "mean_rank_tokens": 4_000.0 + step % 200,
        "peak_reserved_bytes": Run.peak_reserved_bytes,
    }
    rows: Any = (
        select(*(value.label(name) for name, value in values.items()))
        .select_from(Run)
        .join(numbers, true())
        .where(Run.run_id.between(first_id, last_id))
        .order_by(Run.run_id, step)
    )
    connection.execute(insert(Step).from_select(list(values), rows))
