"""The loop of a study: submit missing runs, a few at a time, and note how each ends."""

import shutil
import threading
from dataclasses import dataclass, field
from pathlib import Path

from elasticqa.config.train_config import TrainConfig
from elasticqa.errors import ConfigError
from elasticqa.run.annotations import annotate
from elasticqa.scaling.jobs import LOCAL, Jobs, is_alive
from elasticqa.scaling.progress import Progress
from elasticqa.scaling.study import FAILED, FINISHED, OPEN, STOPPED, Outcome, Study, StudyRun, outcome_of

_NO_REASON = "the job ended without an error message: it was killed, or its node was lost"


@dataclass(kw_only=True)
class JobLoop:
    """Runs the jobs of a study in this process."""

    study: Study
    config: TrainConfig
    """Config of the reference run."""
    runs_dir: Path
    jobs: Jobs
    max_in_flight: int
    stop: threading.Event
    progress: Progress
    poll_interval_s: float = 1.0
    _reattached: set[str] = field(default_factory=set, init=False)
    """Ids of open runs that an earlier process submitted; local runs end soon after that process."""

    def run(self) -> None:
        """Fill the slots until all are done or ``stop`` is set.

        Raises:
            ConfigError: the scheduler refuses a job; jobs in flight keep running.
        """
        missing = (slot for slot in self.study.slots() if self.study.status_of(slot) in (None, STOPPED))
        while not self.stop.is_set():
            for run in self.study.runs_with(OPEN):
                self._poll(run)
            num_free = self.max_in_flight - len(self.study.runs_with(OPEN))
            while num_free > 0 and not self.stop.is_set() and (slot := next(missing, None)) is not None:
                self._submit(self.study.add_run(slot))
                num_free -= 1
            self.progress.redraw(self.study)
            if not self.study.runs_with(OPEN):
                return
            self.stop.wait(self.poll_interval_s)

    def reattach(self) -> None:
        """Update the runs that an earlier process left open.

        A job that was submitted but not noted in the file is found by its name. A run that was never submitted is
        submitted now, under its old id.
        """
        for run in self.study.runs_with(OPEN):
            if run.handle is None:
                handle = self.jobs.find(run)
                if handle is not None:
                    self.study.note_submitted(run, handle)
                elif not self._outcome(run).num_attempts and self.jobs.state(run, at_once=True) == "unknown":
                    self._submit(run)
                    continue
            self._reattached.add(run.run_id)
            self._poll(run, at_once=True)
            if run.status == OPEN:
                self.progress.line(f"{run.slot}: found again, {run.handle or 'on this machine'}")

    def retry_failed(self) -> None:
        """Remove failed runs from the study, so that their slots are filled again."""
        for run in self.study.runs_with(FAILED):
            self.study.note_ended(run, STOPPED, f"to be tried again: {run.reason}")
            self._remove(run)

    def remove_stopped(self) -> None:
        """Remove stopped runs of this machine from the study: their wall clock would include the stop."""
        for run in self.study.runs_with(OPEN):
            # A run of an earlier process may still be running; keep it, the next start finds it again.
            if self._outcome(run).status != "finished" and not is_alive(run.run_id):
                self._note_stopped(run)

    def _outcome(self, run: StudyRun) -> Outcome:
        return outcome_of(self.runs_dir / run.run_id)

    def _submit(self, run: StudyRun) -> None:
        directory = self.runs_dir / run.run_id
        cell = run.slot.cell
        tags = (self.study.tag, f"cell:{cell.name}", f"repeat:{run.slot.repeat}")
        # Tag the run before it is submitted, so that it belongs to the study even if this process dies now.
        annotate(directory, [("name", str(run.slot)), *(("tag", tag) for tag in tags)])
        try:
            handle = self.jobs.submit(run, self.study.matrix.flags_of(cell, self.config))
        except ConfigError as error:
            if self.stop.is_set():
                # Ctrl-C also stopped sbatch, so a job may exist or not; `reattach` of the next start checks.
                return
            self.study.note_ended(run, STOPPED, str(error))
            shutil.rmtree(directory)
            raise
        self.study.note_submitted(run, handle)
        if len(self.study.runs) == 1:
            # Print this after the first job is submitted: a refused study prints only its error.
            self.progress.line(f"study {self.study.study_id}: {len(self.study.slots())} runs")
        self.progress.line(f"{run.slot}: submitted, {handle}")

    def _poll(self, run: StudyRun, *, at_once: bool = False) -> None:
        is_over = self._outcome(run).status in ("finished", "failed")
        try:
            job_state = self.jobs.state(run, at_once=at_once or is_over)
        except ConfigError as error:
            # Try again later: the job runs even if the controller does not answer.
            self.progress.warn(f"{run.slot}: {error}")
            return
        self.progress.job_states[run.run_id] = job_state
        if job_state not in ("queued", "running"):
            # Read again: the run may have written its last line in between.
            self._note_end(run, self._outcome(run))

    def _note_end(self, run: StudyRun, outcome: Outcome) -> None:
        if outcome.status == "finished":
            self.study.note_ended(run, FINISHED)
            self.progress.line(f"{run.slot}: finished, {outcome.wall_clock_s:.1f} s")
            return
        is_local = self.study.matrix.scheduler == LOCAL
        if is_local and run.run_id in self._reattached and outcome.status != "failed":
            self._note_stopped(run)
            return
        reason = outcome.reason or self.jobs.last_message(run, self.study.logs) or _NO_REASON
        self.study.note_ended(run, FAILED, reason)
        self.progress.line(f"{run.slot}: failed: {reason}")

    def _note_stopped(self, run: StudyRun) -> None:
        self.study.note_ended(run, STOPPED, "stopped with the study")
        self._remove(run)

    def _remove(self, run: StudyRun) -> None:
        directory = self.runs_dir / run.run_id
        if self._outcome(run).num_attempts:
            annotate(directory, [("untag", self.study.tag)])
        elif directory.is_dir():
            # The run never started: its directory holds only the study's annotations.
            shutil.rmtree(directory)
