"""Runs a schedule on a real job: inflicts events at their steps, and restarts agents as a scheduler does."""

import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from db.ingest.update import update_database
from elasticqa.run.journal_reader import is_finished
from tests.chaos.faults import Faults, NoWorkerError
from tests.chaos.job import ChaosJob, kill
from tests.chaos.processes import Starter
from tests.chaos.schedule import CHECKPOINT_EVERY, EVALUATE_EVERY, HARMLESS, Event, Schedule
from tests.support import training
from tests.support.processes import until

LIMIT_S = 240.0
"""Between two steps of a run on the slowest machine; more is a hang."""
_MAX_REQUEUES = 12


@dataclass
class Outcome:
    """Result of a schedule.

    Attributes:
        recovery_s: each fault that ended an attempt, with the seconds until the first step of the next attempt.
        num_requeues: how often the whole job had to be started again.
    """

    directory: Path
    wall_clock_s: float = 0.0
    recovery_s: list[tuple[str, float]] = field(default_factory=list)
    num_requeues: int = 0
    num_attempts: int = 0
    damaged: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for a benchmark's results."""
        fields = dict(vars(self))
        del fields["directory"]
        return fields


def flags(model: Path, data: Path, schedule: Schedule) -> list[str]:
    """Return the trainer's flags: ranks get shares of different sizes, and the last batch of an epoch is smaller."""
    return training.flags(
        model, data, "--epochs=12", f"--checkpoint-every-steps={CHECKPOINT_EVERY}",
        f"--eval-every-steps={EVALUATE_EVERY}", f"--parallel={schedule.parallel}",
        *(["--dropout=0"] if schedule.is_elastic else []),
    )  # fmt: skip


class Driver:
    """Runs one schedule to its end."""

    def __init__(self, starter: Starter, home: Path, schedule: Schedule, options: list[str]) -> None:
        self.job = ChaosJob(starter, home, schedule.nnodes, options)
        self._schedule = schedule
        self._faults = Faults(self.job, home)
        self._home = home
        self._seen: dict[Path, bytes] = {}
        """Whole lines of the journals and fed-feature logs at the last look."""
        self.outcome = Outcome(self.job.directory)
        self._recovering: tuple[str, int, float] | None = None
        """A fault that is not recovered yet: its kind, the attempt that it hit, and the time."""
        self._progress: tuple[int, int] = (0, 0)
        self._progress_at = time.monotonic()
        self._wanted_nodes = schedule.first_nodes

    def run(self) -> Outcome:
        """Run the schedule and return its outcome.

        Raises:
            StuckError: the run hangs.
            AssertionError: a line that had been written is missing.
        """
        began = time.monotonic()
        try:
            self.job.start_nodes(self._schedule.first_nodes)
            for event in self._schedule.events:
                if not self._has_hit(event):
                    break
            while not self._supervise():
                self._wait()
        finally:
            self.job.kill_all()
            self._faults.restore_database()
        self._check_lines()
        self._ingest()
        self.outcome.wall_clock_s = time.monotonic() - began
        self.outcome.num_attempts = self.job.attempt
        self.outcome.damaged = self._faults.damaged
        return self.outcome

    def _has_hit(self, event: Event) -> bool:
        """Inflict an event at its step; False if the run ends before."""
        while self._reach(event):
            try:
                self._inflict(event)
            except NoWorkerError:  # it has ended meanwhile
                self._wait()
            else:
                return True
        return False

    def _reach(self, event: Event) -> bool:
        """Wait for the step of an event; False if the run ends before."""
        while True:
            if self._supervise():
                return False
            if event.at_step == 0 and any(self.job.workers(node) for node in self.job.live()):
                return True
            if event.at_step and self._recovering is None and self.job.step >= event.at_step:
                return True
            self._wait()

    def _inflict(self, event: Event) -> None:
        self._check_lines()
        if not self._faults.is_database_away:
            self._ingest()
        if is_finished(self.job.directory):
            return  # meanwhile
        before, began = self.job.attempt, time.monotonic()
        self._faults.inflict(event)
        self._wanted_nodes = max(1, self._wanted_nodes + {"join": 1, "leave": -1}.get(event.kind, 0))
        if event.kind not in HARMLESS:
            # If two faults hit at once, the recovery from the first one is measured.
            kind, began = (self._recovering[0], self._recovering[2]) if self._recovering else (event.kind, began)
            self._recovering = kind, before, began

    def _supervise(self) -> bool:
        """Restart agents as a scheduler does; True when the run is finished and nothing runs."""
        self.job.read_output()
        self._note_recovery()
        live = self.job.live()
        if self._faults.is_database_away and is_finished(self.job.directory):
            self._faults.unlock_database()
        if not live:
            if is_finished(self.job.directory):
                return True
            self._requeue()
        elif not self._schedule.is_elastic and any(self.job.statuses()[-self._schedule.first_nodes :]):
            # A job that needs all its nodes is stopped when one of them has ended.
            self._stop_the_rest()
        return False

    def _stop_the_rest(self) -> None:
        kill(*(node.pid for node in self.job.live()), number=signal.SIGTERM)
        until(lambda: not self.job.live(), f"the end of the other nodes\n{self.job.output()}", LIMIT_S)

    def _requeue(self) -> None:
        self.outcome.num_requeues += 1
        assert self.outcome.num_requeues <= _MAX_REQUEUES, f"started {_MAX_REQUEUES} times\n{self.job.output()}"
        self.job.start_nodes(self._wanted_nodes)

    def _note_recovery(self) -> None:
        if self._recovering is None:
            return
        kind, before, began = self._recovering
        seen = [at for attempt, at in self.job.first_step_at.items() if attempt > before]
        if seen:
            self.outcome.recovery_s.append((kind, min(seen) - began))
            self._recovering = None

    def _wait(self) -> None:
        time.sleep(0.005)
        progress, now = (self.job.attempt, self.job.step), time.monotonic()
        if progress != self._progress:
            self._progress, self._progress_at = progress, now
        elif now - self._progress_at > LIMIT_S:
            raise AssertionError(f"no step for {LIMIT_S:g} s after step {self.job.step}\n{self.job.output()}")

    def _check_lines(self) -> None:
        """Check that no line of a journal or of a fed-feature log has gone since the last call."""
        directory = self.job.directory
        for path in [*directory.glob("journal/*.jsonl"), *directory.glob("fed/*.jsonl")]:
            content = path.read_bytes()
            whole = content[: content.rfind(b"\n") + 1]
            assert whole.startswith(self._seen.get(path, b"")), f"{path} has lost lines"
            self._seen[path] = whole
        missing = [path.name for path in self._seen if not path.exists()]
        assert not missing, f"{missing} have been removed"

    def _ingest(self) -> None:
        """Ingest the unfinished run, as the dashboard does."""
        update_database({"ELASTICQA_HOME": str(self._home)})
