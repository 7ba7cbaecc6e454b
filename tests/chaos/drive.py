"""A schedule on a real job: events at their steps, and what a scheduler does about agents that end."""

import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elasticqa.run.journal_reader import is_finished
from tests.chaos.faults import Faults, NoWorkerError
from tests.chaos.job import Job, kill
from tests.chaos.processes import Starter
from tests.chaos.schedule import CHECKPOINT_EVERY, ENDS_ATTEMPT, EVALUATE_EVERY, Event, Schedule
from tests.chaos.watch import Watch
from tests.support.processes import until

LIMIT_S = 240.0
"""Between two steps towards the end of a run, the slowest machine included; more is a hang."""
_MAX_REQUEUES = 12


@dataclass
class Outcome:
    """What a schedule came to.

    Attributes:
        recovery_s: of each fault that ended an attempt, seconds until the next attempt's first step was said.
        num_requeues: times that the whole job had to be started again.
    """

    directory: Path
    wall_clock_s: float = 0.0
    recovery_s: list[tuple[str, float]] = field(default_factory=list)
    num_requeues: int = 0
    num_attempts: int = 0
    damaged: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return what is kept of it."""
        fields = dict(vars(self))
        del fields["directory"]
        return fields


def flags(model: Path, data: Path, schedule: Schedule) -> list[str]:
    """Return the trainer's options: shares differ in size, the last batch is smaller, and dropout is on or 0."""
    return [
        "--recipe=demo", f"--model={model}", f"--dataset={data}", "--max-length=160", "--doc-stride=32",
        "--global-batch-size=7", "--micro-batch-size=3", "--learning-rate=1e-3", "--log-every-s=0",
        "--no-eval-before", "--epochs=12", f"--checkpoint-every-steps={CHECKPOINT_EVERY}",
        f"--eval-every-steps={EVALUATE_EVERY}", f"--parallel={schedule.parallel}",
        *(["--dropout=0"] if schedule.is_elastic else []),
    ]  # fmt: skip


class Driver:
    """Runs one schedule to its end."""

    def __init__(self, starter: Starter, home: Path, schedule: Schedule, options: list[str]) -> None:
        self.job = Job(starter, home, schedule.nnodes, options)
        self._schedule = schedule
        self._faults = Faults(self.job, home)
        self._watch = Watch(home, self.job.directory)
        self.outcome = Outcome(self.job.directory)
        self._awaited: tuple[str, int, float] | None = None
        """Fault, attempt that it hit, and time: of a fault whose next attempt has not done a step yet."""
        self._heard: tuple[int, int] = (0, 0)
        self._heard_at = time.monotonic()
        self._wanted_nodes = schedule.first_nodes

    def run(self) -> Outcome:
        """Return what the schedule came to.

        Raises:
            StuckError: the run came to a halt.
            AssertionError: a line that had been written is gone.
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
            self._faults.mend()
        self._watch.look()
        self._watch.ingest()
        self.outcome.wall_clock_s = time.monotonic() - began
        self.outcome.num_attempts = self.job.attempt
        self.outcome.damaged = self._faults.damaged
        return self.outcome

    def _has_hit(self, event: Event) -> bool:
        """Do an event at its step; False when the run has ended before."""
        while self._reach(event):
            try:
                self._inflict(event)
            except NoWorkerError:  # it has ended since; whether others are to be started is for the supervision
                self._wait()
            else:
                return True
        return False

    def _reach(self, event: Event) -> bool:
        """Wait for the step of an event; False when the run has ended before."""
        while True:
            if self._supervise():
                return False
            if event.at_step == 0 and any(self.job.workers(node) for node in self.job.live()):
                return True
            if event.at_step and self._awaited is None and self.job.step >= event.at_step:
                return True
            self._wait()

    def _inflict(self, event: Event) -> None:
        self._watch.look()
        if not self._faults.is_database_away:
            self._watch.ingest()
        if is_finished(self.job.directory):
            return  # while this process waited for a CPU
        before, began = self.job.attempt, time.monotonic()
        self._faults.inflict(event)
        self._wanted_nodes = max(1, self._wanted_nodes + {"join": 1, "leave": -1}.get(event.kind, 0))
        if event.kind in ENDS_ATTEMPT:
            # Of two faults at once the first one's recovery is measured.
            kind, began = (self._awaited[0], self._awaited[2]) if self._awaited else (event.kind, began)
            self._awaited = kind, before, began

    def _supervise(self) -> bool:
        """Do what a scheduler does; True when the run is finished and nothing runs."""
        self.job.listen()
        self._note_recovery()
        live = self.job.live()
        if self._faults.is_database_away and is_finished(self.job.directory):
            self._faults.unlock()
        if not live:
            if is_finished(self.job.directory):
                return True
            self._requeue()
        elif not self._schedule.is_elastic and any(self.job.statuses()[-self._schedule.first_nodes :]):
            # A job that needs all its nodes is stopped when one of them is gone.
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
        if self._awaited is None:
            return
        kind, before, began = self._awaited
        seen = [at for attempt, at in self.job.first_step_at.items() if attempt > before]
        if seen:
            self.outcome.recovery_s.append((kind, min(seen) - began))
            self._awaited = None

    def _wait(self) -> None:
        time.sleep(0.005)
        heard = (self.job.attempt, self.job.step)
        now = time.monotonic()
        if heard != self._heard:
            self._heard, self._heard_at = heard, now
        elif now - self._heard_at > LIMIT_S:
            raise AssertionError(f"no step for {LIMIT_S:g} s after step {self.job.step}\n{self.job.output()}")
