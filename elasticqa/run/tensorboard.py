"""Event files for TensorBoard, beside the journal and from the same figures."""

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
"""How often what has been said goes to the writer: to make the event of a step takes 60 us."""


class TensorBoardLog:
    """Writes the scalars of one attempt, in threads of its own.

    Where its files cannot be written any more, a later call raises the error.
    """

    def __init__(self, directory: Path) -> None:
        self._writer = SummaryWriter(str(directory))
        self._hook = threading.excepthook
        threading.excepthook = self._tell
        self._said: deque[Callable[[], None]] = deque()
        self._failure: OSError | None = None
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._pass_on, name="tensorboard", daemon=True)
        self._thread.start()

    def step(self, metrics: StepMetrics) -> None:
        """Write loss, gradient norm, learning rate, step time and throughput of a step."""
        self._say(partial(self._step, metrics))

    def evaluation(self, evaluation: Evaluation) -> None:
        """Write EM and F1 in percent."""
        scalars = {"eval/em": evaluation.em, "eval/f1": evaluation.f1}
        self._say(partial(self._add, scalars, evaluation.step))

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
        self._say(partial(self._writer.add_hparams, shown, figures, run_name="."))

    def _step(self, metrics: StepMetrics) -> None:
        scalars = {
            "train/loss": metrics.loss,
            "train/grad_norm": metrics.grad_norm,
            "train/learning_rate": metrics.learning_rate,
            "train/step_time": metrics.step_time_s,
            "train/samples_per_s": metrics.num_features / metrics.step_time_s,
        }
        self._add(scalars, metrics.step)

    def _add(self, scalars: Mapping[str, float], step: int) -> None:
        # One event for all of them: an event each takes four times as long.
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        self._writer.file_writer.add_summary(Summary(value=values), step)  # type: ignore[attr-defined]

    def _say(self, write: Callable[[], None]) -> None:
        if self._failure is not None:
            raise self._failure
        self._said.append(write)

    def _pass_on(self) -> None:
        """Give the writer what has been said, until closed or until it cannot write."""
        try:
            while not self._is_closing.wait(_INTERVAL_S):
                self._empty()
            self._empty()
        except OSError as error:
            self._failure = error

    def _empty(self) -> None:
        while self._said:
            self._said.popleft()()

    def _tell(self, failure: threading.ExceptHookArgs) -> None:
        """Leave out the traceback of the writer's thread: the next write raises the same error."""
        is_writer = type(failure.thread).__module__.startswith("tensorboard.")
        if not (is_writer and isinstance(failure.exc_value, OSError)):
            self._hook(failure)

    def close(self) -> None:
        """Write what is left and stop; what cannot be written is in the journal."""
        self._is_closing.set()
        self._thread.join()
        with suppress(OSError):
            self._writer.close()
        threading.excepthook = self._hook
