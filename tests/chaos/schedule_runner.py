"""Runs schedules, each in its own home directory, and compares them with uninterrupted runs."""

import shutil
import subprocess
from pathlib import Path

from tests.chaos.check import Run, check
from tests.chaos.drive import Driver, Outcome, flags
from tests.chaos.processes import ExecutedStarter, ForkedStarter, Starter
from tests.chaos.schedule import Schedule
from tests.support import training

_DISK = "64m"
"""For a schedule that fills its disk: three checkpoints of 12 MB, the model and the rest fit."""


class ScheduleRunner:
    """Runs schedules, one after the other."""

    def __init__(self, folder: Path, model: Path, data: Path, *, is_forked: bool) -> None:
        """Prepare.

        Args:
            folder: for all files.
            model: directory of the model.
            data: directory of the data set.
            is_forked: processes are forked with their imports done.
        """
        self._folder = folder
        self._model = model
        self._data = data
        self._starter: Starter = ForkedStarter(training.environment(folder)) if is_forked else ExecutedStarter()
        self._references: dict[Schedule, Run] = {}

    def run(self, schedule: Schedule) -> Outcome:
        """Run a schedule and compare it with the uninterrupted run.

        Raises:
            AssertionError: a check fails, or the run hangs; the files stay.
        """
        reference = self._reference(schedule)
        home = self._folder / schedule.name
        has_disk = any(event.kind == "fill_disk" for event in schedule.events)
        home.mkdir()
        if has_disk:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "chaos", str(home)], check=True)
        try:
            outcome = self._drive(schedule, home)
            scratch = home.with_name(f"{home.name}-rebuilt")
            check(home, outcome.directory, reference, is_elastic=schedule.is_elastic, scratch=scratch)
        finally:
            if has_disk:
                shutil.copytree(home, home.with_name(f"{home.name}-kept"))
                subprocess.run(["umount", str(home)], check=True)
        for left in self._folder.glob(f"{schedule.name}*"):
            shutil.rmtree(left)
        return outcome

    def _reference(self, schedule: Schedule) -> Run:
        """Return the run without faults: on as many nodes if the world size is fixed, else on one."""
        nodes = 1 if schedule.is_elastic else schedule.first_nodes
        wanted = Schedule(
            f"reference-{nodes}-{schedule.parallel}-{schedule.is_elastic}",
            "1:4" if schedule.is_elastic else f"{nodes}:{nodes}",
            nodes,
            (),
            schedule.parallel,
        )
        if wanted not in self._references:
            home = self._folder / wanted.name
            home.mkdir()
            self._references[wanted] = Run.of(self._drive(wanted, home).directory)
        return self._references[wanted]

    def _drive(self, schedule: Schedule, home: Path) -> Outcome:
        return Driver(self._starter, home, schedule, flags(self._model, self._data, schedule)).run()

    def close(self) -> None:
        """Kill what still runs."""
        self._starter.close()
