"""A home with a few groups of runs, for tests of reports and of the commands that read the record."""

from pathlib import Path

from tests.support.dashboard_data import AttemptSpec, RunSpec, ulid, write_run

NOW = 1_795_000_000.0
HOSTILE = (
    "</script><img src=x onerror=alert(1)> | `a` **b** [c](javascript:d) \\input{/etc/passwd} $x_1^2$ & 50% #1 ~ "
    '"é中\x1b[31m\n'
)


def _spec(number: int, wall_clock_s: float, **changes: object) -> RunSpec:
    attempt = AttemptSpec(1, 20, NOW - 1e5 + number * 1e3)
    settings = {
        "run_id": ulid(number),
        "attempts": (attempt,),
        "num_steps": 20,
        "seed": number,
        "step_time_s": wall_clock_s / 20,
        **changes,
    }
    return RunSpec(**settings)  # type: ignore[arg-type]


def write_home(home: Path) -> Path:
    """Write three runs on one device and three on two, one of them with a hostile name."""
    for number in range(3):
        write_run(home / "runs", _spec(number, 10.0 + number, parallel="none"))
        write_run(home / "runs", _spec(10 + number, 5.0 + number, world_size=2, name=HOSTILE if number == 2 else None))
    return home
