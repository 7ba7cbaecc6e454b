"""The loop of a study: fill what is missing, a few jobs at a time, and note what becomes of each."""

import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from elasticqa.config.train_config import TrainConfig
from elasticqa.errors import ConfigError
from elasticqa.run.annotations import annotate
from elasticqa.scaling import state
from elasticqa.scaling.jobs import LOCAL, Jobs, is_alive
from elasticqa.scaling.outcome import Outcome, outcome_of
from elasticqa.scaling.plan import Slot
from elasticqa.scaling.progress import Screen
from elasticqa.scaling.state import Study, Try

_GONE = "the job ended without a word: killed, or its node was lost"


@dataclass(kw_only=True)
class Watch:
    """One process's work for a study."""

    study: Study
    config: TrainConfig
    """Of the reference."""
    runs: Path
    jobs: Jobs
    in_flight: int
    stop: threading.Event
    screen: Screen
    look_interval_s: float = 1.0
    _left: set[str] = field(default_factory=set, init=False)
    """Runs that an earlier process of the study left open; on this machine they stop with it, if not at once."""

    def run(self) -> None:
        """Fill the slots until all are done or the study is asked to stop.

        Raises:
            ConfigError: the scheduler refuses a job; what is in flight goes on.
        """
        missing = self._missing()
        while not self.stop.is_set():
            for item in self.study.all_with(state.OPEN):
                self._look_at(item)
            num_free = self.in_flight - len(self.study.all_with(state.OPEN))
            while num_free > 0 and not self.stop.is_set() and (slot := next(missing, None)) is not None:
                self._submit(self.study.begin_try(slot))
                num_free -= 1
            self.screen.show(self.study)
            if not self.study.all_with(state.OPEN):
                return
            self.stop.wait(self.look_interval_s)

    def find_again(self) -> None:
        """Bring what an earlier process left open to what it is now.

        A job that was submitted without a trace in the file is found by its name; a run that was never submitted is
        submitted now, under the id that it was given.
        """
        for item in self.study.all_with(state.OPEN):
            if item.handle is None:
                handle = self.jobs.find(item)
                if handle is not None:
                    self.study.submitted(item, handle)
                elif (
                    not outcome_of(self.runs / item.run_id).num_attempts
                    and self.jobs.state(item, at_once=True) == "unknown"
                ):
                    self._submit(item)
                    continue
            self._left.add(item.run_id)
            self._look_at(item, at_once=True)
            if item.status == state.OPEN:
                self.screen.say(f"{item.slot}: found again, {item.handle or 'on this machine'}")

    def retry(self) -> None:
        """Let the failed slots be tried again; their runs leave the study."""
        for item in self.study.all_with(state.FAILED):
            self._leave(item)

    def leave_local(self) -> None:
        """Note that the runs of this machine stop with the study: a time with a stop in it is none."""
        for item in self.study.all_with(state.OPEN):
            # One that an earlier process of this study has left goes on, and is found again.
            if outcome_of(self.runs / item.run_id).status != "finished" and not is_alive(item.run_id):
                self.study.ended(item, state.STOPPED, "stopped with the study")
                self._leave(item)

    def _missing(self) -> Iterator[Slot]:
        for slot in self.study.plan.slots(self.study.study_id):
            if self.study.status_of(slot) in (None, state.STOPPED):
                yield slot

    def _submit(self, item: Try) -> None:
        directory = self.runs / item.run_id
        cell = item.slot.cell
        tags = (self.study.tag, f"cell:{cell.name}", f"repeat:{item.slot.repeat}")
        # Before the run begins, so that its record tells whose it is whatever dies.
        annotate(directory, [("name", str(item.slot)), *(("tag", tag) for tag in tags)])
        try:
            handle = self.jobs.submit(item, self.study.plan.flags_of(cell, self.config))
        except ConfigError as error:
            if self.stop.is_set():
                # Ctrl-C reaches sbatch too: whether there is a job is found out when the study goes on.
                return
            self.study.ended(item, state.STOPPED, str(error))
            shutil.rmtree(directory)
            raise
        self.study.submitted(item, handle)
        if len(self.study.tries) == 1:
            # Not before: what is refused at once is one line.
            self.screen.say(f"study {self.study.study_id}: {len(self.study.plan.slots(self.study.study_id))} runs")
        self.screen.say(f"{item.slot}: submitted, {handle}")

    def _look_at(self, item: Try, *, at_once: bool = False) -> None:
        outcome = outcome_of(self.runs / item.run_id)
        try:
            job = self.jobs.state(item, at_once=at_once or outcome.status in ("finished", "failed"))
        except ConfigError as error:
            # A controller that is away comes back; the job does not depend on it.
            self.screen.trouble(f"{item.slot}: {error}")
            return
        self.screen.states[item.run_id] = job
        if job in ("queued", "running"):
            return
        # Read again: the last line may have been written between the two questions.
        self._note(item, outcome_of(self.runs / item.run_id))

    def _note(self, item: Try, outcome: Outcome) -> None:
        if outcome.status == "finished":
            self.study.ended(item, state.FINISHED)
            self.screen.say(f"{item.slot}: finished, {outcome.wall_clock_s:.1f} s")
            return
        was_left = item.run_id in self._left
        if was_left and self.study.plan.scheduler == LOCAL and outcome.status != "failed":
            self.study.ended(item, state.STOPPED, "stopped with the study")
            self._leave(item)
            return
        reason = outcome.reason or self.jobs.last_words(item, self.study.logs) or _GONE
        self.study.ended(item, state.FAILED, reason)
        self.screen.say(f"{item.slot}: failed: {reason}")

    def _leave(self, item: Try) -> None:
        """Take a run out of the study: its slot is free."""
        if item.status == state.FAILED:
            self.study.ended(item, state.STOPPED, f"to be tried again: {item.reason}")
        directory = self.runs / item.run_id
        if outcome_of(directory).num_attempts:
            annotate(directory, [("untag", self.study.tag)])
        elif directory.is_dir():
            # It never began: nothing is in it but what the study wrote.
            shutil.rmtree(directory)
