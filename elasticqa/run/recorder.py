"""What a rank says of its run: to the journal, to TensorBoard and to whoever watches the terminal."""

import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from db.journal_schema import Kind
from elasticqa.config.batch_plan import BatchPlan
from elasticqa.config.train_config import TrainConfig
from elasticqa.run.journal import FeatureLog, Journal
from elasticqa.run.metrics import Evaluation, StepMetrics
from elasticqa.run.tensorboard import TensorBoardLog


class Recorder:
    """Where facts of a run go on this rank; a rank that is not the one to tell stays silent."""

    def __init__(
        self,
        config: TrainConfig,
        plan: BatchPlan,
        *,
        journal: Journal | None,
        tensorboard: TensorBoardLog | None,
        feature_log: FeatureLog,
        is_main: bool,
    ) -> None:
        self._config = config
        self._plan = plan
        self._journal = journal
        self._tensorboard = tensorboard
        self._feature_log = feature_log
        self._is_main = is_main
        self._said_at = -math.inf
        self._is_gone = False
        self._recent: list[StepMetrics] = []
        self.evaluations: list[Evaluation] = []
        """Of this attempt, in order."""

    def fed(self, step: int, feature_ids: list[int]) -> None:
        """Note the features that this rank fed to the model in a step."""
        self._feature_log.write(step, feature_ids)

    def step(self, metrics: StepMetrics) -> None:
        """Note a step, and say where the run stands every few seconds."""
        if not self._is_main:
            return
        # Every field is a plain value: a deep copy (asdict) would cost thirty times as much.
        self._write("step", vars(metrics))
        self._draw(lambda log: log.step(metrics))
        self._recent.append(metrics)
        now = time.monotonic()
        if now - self._said_at >= self._config.log_every_s or metrics.step == self._plan.num_steps:
            self.say(progress_line(self._recent, self._plan))
            self._said_at = now
            self._recent.clear()

    def evaluation(self, evaluation: Evaluation) -> None:
        """Note an evaluation and say its figures."""
        self.evaluations.append(evaluation)
        self._write("evaluation", asdict(evaluation))
        self._draw(lambda log: log.evaluation(evaluation))
        self.say(
            f"evaluation at step {evaluation.step}: EM {evaluation.em:.2f}  F1 {evaluation.f1:.2f}  "
            f"({evaluation.num_examples} questions, {evaluation.eval_time_s:.1f} s)"
        )

    @property
    def is_gone(self) -> bool:
        """Whether the run directory was removed, as far as has been noticed: what is still said is lost."""
        return self._is_gone

    def _draw(self, work: Callable[[TensorBoardLog], None]) -> None:
        """Write to TensorBoard's files while they can be written: they only repeat the journal."""
        if self._tensorboard is None:
            return
        try:
            work(self._tensorboard)
        except OSError as error:
            self._tensorboard = None
            self._is_gone = self._journal is not None and not self._journal.path.exists()
            self.say(f"TensorBoard's files cannot be written any more: {error.strerror}")

    def event(self, name: str, message: str, **data: Any) -> None:
        """Note and say anything else."""
        self._write("event", {"name": name, "message": message, "data": data})
        self.say(message)

    def totals(self, end: dict[str, Any]) -> None:
        """Note what the run came to beside its hyper-parameters."""
        if self._tensorboard is not None:
            self._tensorboard.hparams(
                self._config.to_dict(), total_time_s=end["wall_clock_s"], final_loss=end["final_loss"]
            )

    def write(self, kind: Kind, fields: dict[str, Any]) -> None:
        """Write a line of another kind, from the main rank."""
        self._write(kind, fields)

    def flush(self) -> None:
        """Return once everything said so far is on the disk."""
        self._feature_log.flush()
        if self._journal is not None:
            self._journal.flush()

    def say(self, message: str) -> None:
        """Print a line on the main rank: stdout is no terminal under a scheduler, so nothing is redrawn."""
        if self._is_main:
            sys.stdout.write(message + "\n")
            sys.stdout.flush()

    def _write(self, kind: Kind, fields: dict[str, Any]) -> None:
        if self._is_main and self._journal is not None:
            self._journal.write(kind, fields)


def progress_line(recent: list[StepMetrics], plan: BatchPlan) -> str:
    """Return where the run stands: the newest step, and means over the steps since the last line."""
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
