"""A dozen real runs under faults. `python -m benchmarks.faults.chaos` draws hundreds of others from seeds."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.schedule import Event, Schedule, draw
from tests.chaos.schedule_runner import ScheduleRunner

pytestmark = pytest.mark.slow

DOZEN = (
    Schedule(
        "workers-killed", "2:2", 2,
        (Event("kill_worker", 15, 0), Event("kill_worker", 0, 1), Event("kill_worker", 50, 1)),
    ),
    Schedule("agent-of-the-store-killed", "2:2", 2, (Event("kill_agent", 25, 0),)),
    Schedule("one-of-three-nodes-without-power", "3:3", 3, (Event("kill_node", 25, 1),)),
    Schedule("terminated", "2:2", 2, (Event("terminate_worker", 15, 1), Event("terminate_agent", 45, 0))),
    Schedule("worker-stopped", "2:2", 2, (Event("stop_worker", 25, 1),)),
    Schedule("newest-checkpoint-damaged", "2:2", 2, (Event("tear_checkpoint", 35, 1), Event("flip_checkpoint", 58, 0))),
    Schedule("manifest-damaged", "2:2", 2, (Event("tear_checkpoint", 35, 0, 3), Event("flip_checkpoint", 58, 0, 1))),
    Schedule("disk-full", "2:2", 2, (Event("fill_disk", 25),)),
    Schedule(
        "database-locked", "2:2", 2, (Event("kill_ingest", 15), Event("lock_database", 30), Event("kill_worker", 45))
    ),
    Schedule(
        "database-gone", "2:2", 2, (Event("remove_database", 20), Event("kill_worker", 40), Event("break_database", 60))
    ),
    Schedule(
        "one-to-four-to-two-to-three", "1:4", 1,
        (
            Event("join", 15), Event("join", 0), Event("join", 0),
            Event("leave", 35, 3), Event("leave", 0, 2), Event("join", 60),
        ),
    ),
    Schedule("sharded-and-smaller", "1:4", 2, (Event("pause_worker", 15), Event("kill_node", 30, 1)), "fsdp"),
)  # fmt: skip


@pytest.fixture(scope="module")
def runner(tiny_model: Path, tiny_squad: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScheduleRunner]:
    runner = ScheduleRunner(tmp_path_factory.mktemp("chaos"), tiny_model, tiny_squad, is_forked=True)
    yield runner
    runner.close()


@pytest.mark.parametrize("schedule", DOZEN, ids=lambda schedule: schedule.name)
def test_run_under_faults_equals_the_uninterrupted_run(schedule: Schedule, runner: ScheduleRunner) -> None:
    """Finished, every feature of an epoch once and in its step, losses equal, journal and database without a gap."""
    if os.geteuid() != 0 and any(event.kind == "fill_disk" for event in schedule.events):
        pytest.skip("a file system of its own for the record needs root")
    runner.run(schedule)


def test_seed_always_draws_the_same_schedule() -> None:
    schedules = [draw(seed) for seed in range(200)]
    assert schedules == [draw(seed) for seed in range(200)]
    assert len({schedule.events for schedule in schedules}) > 190
    assert {schedule.is_elastic for schedule in schedules} == {True, False}
