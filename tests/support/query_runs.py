"""Four runs that differ in what queries look at."""

from dataclasses import replace
from typing import Any

from db import queries
from tests.support.dashboard_data import AttemptSpec, RunSpec, ulid

NOW = 1_800_000_000.0
KILLED = RunSpec(
    ulid(1),
    (
        AttemptSpec(1, 130, NOW - 5_000, None),
        AttemptSpec(101, 160, NOW - 4_000, "preempted"),
        AttemptSpec(161, 200, NOW - 3_000),
    ),
    name="Killed and resumed",
    tags=("élastique",),
    world_size=4,
    num_nodes=2,
)
PLAIN = RunSpec(ulid(2), (AttemptSpec(1, 60, NOW - 2_000),), parallel="none", num_steps=60, step_time_s=0.1)
RUNNING = RunSpec(ulid(3), (AttemptSpec(1, 10, NOW - 20, None),), recipe="demo", name="100%_done")
LOST = RunSpec(ulid(4), (AttemptSpec(1, 10, NOW - 900, None),), recipe="demo", parallel="fsdp")


def group(spec: RunSpec, times: tuple[float, ...], **setting: Any) -> queries.Group:
    """Return a group as a query would, with these wall clocks."""
    base = queries.Setting(
        provenance="measured",
        recipe=spec.recipe,
        model="bert-base-uncased",
        dataset="squad",
        parallel=spec.parallel,
        precision="bf16",
        device_type="cuda",
        device_name=spec.device_name,
        world_size=spec.world_size,
        num_nodes=1,
        global_batch_size=spec.global_batch_size,
        num_epochs=2.0,
        num_train_features=1000,
    )
    repeats = tuple(
        queries.Repeat(
            run_id=str(index),
            name=spec.name,
            num_attempts=1,
            wall_clock_s=time_s,
            samples_per_s=2000 / time_s,
            tokens_per_s=None,
            em=None,
            f1=None,
            peak_memory_bytes=None,
        )
        for index, time_s in enumerate(times)
    )
    return queries.Group(
        key=f"{spec.run_id}{setting}",
        setting=replace(base, **setting),
        config={"learning_rate": 4e-5, "seed": 1},
        software=({"torch": "2.13.0"},),
        repeats=repeats,
    )
