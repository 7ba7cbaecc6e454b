"""Event files for TensorBoard, beside the journal and from the same figures."""

import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from elasticqa.metrics import Evaluation, StepMetrics


class TensorBoardLog:
    """Writes the scalars of one attempt; its own thread does the disk work."""

    def __init__(self, directory: Path) -> None:
        self._writer = SummaryWriter(str(directory))
        self._hook = threading.excepthook
        threading.excepthook = self._tell

    def step(self, metrics: StepMetrics) -> None:
        """Write loss, gradient norm, learning rate, step time and throughput of a step."""
        scalars = {
            "train/loss": metrics.loss,
            "train/grad_norm": metrics.grad_norm,
            "train/learning_rate": metrics.learning_rate,
            "train/step_time": metrics.step_time_s,
            "train/samples_per_s": metrics.num_features / metrics.step_time_s,
        }
        for tag, value in scalars.items():
            self._writer.add_scalar(tag, value, metrics.step)

    def evaluation(self, evaluation: Evaluation) -> None:
        """Write EM and F1 in percent."""
        self._writer.add_scalar("eval/em", evaluation.em, evaluation.step)
        self._writer.add_scalar("eval/f1", evaluation.f1, evaluation.step)

    def hparams(self, config: Mapping[str, Any], *, total_time_s: float, final_loss: float | None) -> None:
        """Write the hyper-parameters beside what they gave.

        Args:
            config: fields of the run's config; None is written as text, which is what TensorBoard can show.
            total_time_s: wall clock of the attempt.
            final_loss: mean of the last epoch, None if there was none.
        """
        shown = {name: value if isinstance(value, int | float | str) else str(value) for name, value in config.items()}
        figures = {"hparam/total_time_s": total_time_s}
        if final_loss is not None:
            figures["hparam/final_loss"] = final_loss
        self._writer.add_hparams(shown, figures, run_name=".")

    def _tell(self, failure: threading.ExceptHookArgs) -> None:
        """Leave out the traceback of the writer's thread: the next write raises the same error in the main thread."""
        is_writer = type(failure.thread).__module__.startswith("tensorboard.")
        if not (is_writer and isinstance(failure.exc_value, OSError)):
            self._hook(failure)

    def close(self) -> None:
        """Write what is left and stop; what cannot be written is in the journal."""
        with suppress(OSError):
            self._writer.close()
        threading.excepthook = self._hook
