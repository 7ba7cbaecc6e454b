"""Event files for TensorBoard, with the same values as the journal."""

import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.summary_pb2 import Summary
from torch.utils.tensorboard import SummaryWriter

from elasticqa.run.metrics import Evaluation, StepMetrics

_INTERVAL_S = 1.0
"""Seconds between two batches of queued values, so that creating events (60 us a step) does not delay training."""


class TensorBoardLog:
    """Writes the scalars of one attempt in threads of its own; after a failed write, later calls raise its error."""

    def __init__(self, directory: Path) -> None:
        self._writer = SummaryWriter(str(directory))
        self._hook = threading.excepthook
        threading.excepthook = self._silence_writer
        self._queue: deque[Callable[[], None]] = deque()
        self._failure: OSError | None = None
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tensorboard", daemon=True)
        self._thread.start()

    def log_step(self, metrics: StepMetrics) -> None:
        """Log loss, gradient norm, learning rate, step time and throughput of a step."""
        scalars = {
            "train/loss": metrics.loss,
            "train/grad_norm": metrics.grad_norm,
            "train/learning_rate": metrics.learning_rate,
            "train/step_time": metrics.step_time_s,
            "train/samples_per_s": metrics.num_features / metrics.step_time_s,
        }
        self._put(partial(self._add, scalars, metrics.step))

    def log_evaluation(self, evaluation: Evaluation) -> None:
        """Log EM and F1 in percent."""
        scalars = {"eval/em": evaluation.em, "eval/f1": evaluation.f1}
        self._put(partial(self._add, scalars, evaluation.step))

    def log_hparams(self, config: Mapping[str, Any], *, total_time_s: float, final_loss: float | None) -> None:
        """Log the hyper-parameters beside the wall clock of the attempt and the mean loss of its last epoch."""
        # TensorBoard cannot show None.
        shown = {name: value if isinstance(value, int | float | str) else str(value) for name, value in config.items()}
        results = {"hparam/total_time_s": total_time_s}
        if final_loss is not None:
            results["hparam/final_loss"] = final_loss
        self._put(partial(self._writer.add_hparams, shown, results, run_name="."))

    def _add(self, scalars: Mapping[str, float], step: int) -> None:
        # One event for all scalars: one event each takes four times as long.
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        self._writer.file_writer.add_summary(Summary(value=values), step)  # type: ignore[attr-defined]

    def _put(self, write: Callable[[], None]) -> None:
        if self._failure is not None:
            raise self._failure
        self._queue.append(write)

    def _run(self) -> None:
        """Pass queued values to the writer, until closed or until a write fails."""
        try:
            is_last = False
            while not is_last:
                is_last = self._is_closing.wait(_INTERVAL_S)
                while self._queue:
                    self._queue.popleft()()
        except OSError as error:
            self._failure = error

    def _silence_writer(self, failure: threading.ExceptHookArgs) -> None:
        """Print no traceback if the writer's thread fails: the next write raises the same error."""
        is_writer = type(failure.thread).__module__.startswith("tensorboard.")
        if not (is_writer and isinstance(failure.exc_value, OSError)):
            self._hook(failure)

    def close(self) -> None:
        """Write the queued values and stop; a failed write is ignored, because the journal has the values."""
        self._is_closing.set()
        self._thread.join()
        with suppress(OSError):
            self._writer.close()
        threading.excepthook = self._hook
