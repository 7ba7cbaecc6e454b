"""Four runs that differ in what queries look at."""

from tests.support.dashboard_data import Life, RunSpec, ulid

NOW = 1_800_000_000.0
KILLED = RunSpec(
    ulid(1),
    (Life(1, 130, NOW - 5_000, None), Life(101, 160, NOW - 4_000, "preempted"), Life(161, 200, NOW - 3_000)),
    name="Killed and resumed",
    tags=("élastique",),
    world_size=4,
    num_nodes=2,
)
PLAIN = RunSpec(ulid(2), (Life(1, 60, NOW - 2_000),), parallel="none", num_steps=60, step_time_s=0.1)
RUNNING = RunSpec(ulid(3), (Life(1, 10, NOW - 20, None),), recipe="demo", name="100%_done")
LOST = RunSpec(ulid(4), (Life(1, 10, NOW - 900, None),), recipe="demo", parallel="fsdp")
