"""Writes the events of a run to the journal, to TensorBoard and to the terminal."""

import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from db.journal_schema import Kind
from elasticqa.config.batch_plan import BatchPlan
from elasticqa.config.train_config import TrainConfig
from elasticqa.run.journal import FeatureLog, Journal
from elasticqa.run.metrics import Evaluation, StepMetrics
from elasticqa.run.tensorboard import TensorBoardLog


@dataclass(kw_only=True)
class Recorder:
    """Records the run on the main rank; other ranks only log the features that they train on."""

    config: TrainConfig
    plan: BatchPlan
    journal: Journal | None
    tensorboard: TensorBoardLog | None
    feature_log: FeatureLog
    is_main: bool
    evaluations: list[Evaluation] = field(default_factory=list, init=False)
    """Evaluations of this attempt, in order."""
    is_run_removed: bool = field(default=False, init=False)
    """A write failed because the run directory was removed; later records are lost."""
    _printed_at: float = field(default=-math.inf, init=False)
    _recent: list[StepMetrics] = field(default_factory=list, init=False)

    def log_features(self, step: int, feature_ids: list[int]) -> None:
        """Log the features that this rank trained on in a step."""
        self.feature_log.write(step, feature_ids)

    def log_step(self, metrics: StepMetrics) -> None:
        """Log a step, and print the progress every few seconds."""
        if not self.is_main:
            return
        # Do not use asdict: its deep copy takes thirty times as long, and all fields are plain values.
        self.write("step", vars(metrics))
        self._log_to_tensorboard(lambda log: log.log_step(metrics))
        self._recent.append(metrics)
        now = time.monotonic()
        if now - self._printed_at >= self.config.log_every_s or metrics.step == self.plan.num_steps:
            self.print_line(progress_line(self._recent, self.plan))
            self._printed_at = now
            self._recent.clear()

    def log_evaluation(self, evaluation: Evaluation) -> None:
        """Log and print an evaluation."""
        self.evaluations.append(evaluation)
        self.write("evaluation", asdict(evaluation))
        self._log_to_tensorboard(lambda log: log.log_evaluation(evaluation))
        self.print_line(
            f"evaluation at step {evaluation.step}: EM {evaluation.em:.2f}  F1 {evaluation.f1:.2f}  "
            f"({evaluation.num_examples} questions, {evaluation.eval_time_s:.1f} s)"
        )

    def _log_to_tensorboard(self, work: Callable[[TensorBoardLog], None]) -> None:
        """Write to TensorBoard's files until a write fails: the journal has the same values."""
        if self.tensorboard is None:
            return
        try:
            work(self.tensorboard)
        except OSError as error:
            self.tensorboard = None
            self.is_run_removed = self.journal is not None and not self.journal.path.exists()
            self.print_line(f"TensorBoard's files can no longer be written: {error.strerror}")

    def log_event(self, name: str, message: str, **data: Any) -> None:
        """Log and print any other event."""
        self.write("event", {"name": name, "message": message, "data": data})
        self.print_line(message)

    def log_totals(self, end: dict[str, Any]) -> None:
        """Log the results of the run beside its hyper-parameters, from its `end` line."""
        if self.tensorboard is not None:
            self.tensorboard.log_hparams(
                self.config.to_dict(), total_time_s=end["wall_clock_s"], final_loss=end["final_loss"]
            )

    def write(self, kind: Kind, fields: dict[str, Any]) -> None:
        """Write a line to the journal, on the main rank."""
        if self.is_main and self.journal is not None:
            self.journal.write(kind, fields)

    def flush(self) -> None:
        """Return once all records so far are on disk."""
        self.feature_log.flush()
        if self.journal is not None:
            self.journal.flush()

    def print_line(self, message: str) -> None:
        """Print a line on the main rank; under a scheduler stdout is a file, so lines are not redrawn."""
        if self.is_main:
            sys.stdout.write(message + "\n")
            sys.stdout.flush()


def progress_line(recent: list[StepMetrics], plan: BatchPlan) -> str:
    """Return a line with the newest step, means over the recent steps, and the time left."""
    last = recent[-1]
    seconds = sum(metrics.step_time_s for metrics in recent)
    rate = sum(metrics.num_features for metrics in recent) / seconds if seconds else 0.0
    loss = sum(metrics.loss for metrics in recent) / len(recent)
    left = (plan.samples_seen(plan.num_steps) - last.samples_seen) / rate if rate else 0.0
    minutes, whole_seconds = divmod(round(left), 60)
    return (
        f"step {last.step}/{plan.num_steps}  epoch {last.samples_seen / plan.num_train_features:.2f}  loss {loss:.4f}  "
        f"lr {last.learning_rate:.2e}  {rate:.1f} features/s  time left {minutes}:{whole_seconds:02d}"
    )
