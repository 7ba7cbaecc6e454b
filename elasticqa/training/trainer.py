"""The training loop, from the restored step to the last one."""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from signal import Signals

from torch import nn

from elasticqa.checkpoint.checkpointer import Checkpointer
from elasticqa.config.train_config import TrainConfig
from elasticqa.data.sampler import Sampler, StepBatch
from elasticqa.distributed.topology import Topology
from elasticqa.elastic.signals import StopRequest
from elasticqa.errors import MicroBatchTooLargeError
from elasticqa.models.parallelize import free_gathered_weights
from elasticqa.profiling.step_profiler import ProfileError, StepProfiler
from elasticqa.run.metrics import Evaluation
from elasticqa.run.recorder import Recorder
from elasticqa.training.optimizer import learning_rate_at
from elasticqa.training.progress import Progress
from elasticqa.training.step_metrics import MetricsQueue, NonFiniteLossError
from elasticqa.training.train_step import StepOutput, TrainStep


@dataclass(kw_only=True)
class Trainer:
    """Trains from ``progress.step`` to the end of the plan."""

    config: TrainConfig
    topology: Topology
    sampler: Sampler
    train_step: TrainStep
    recorder: Recorder
    checkpointer: Checkpointer
    progress: Progress
    evaluate: Callable[[nn.Module, int], Evaluation | None] | None
    stop: StopRequest
    profiler: StepProfiler | None = None
    first_pass_time_s: float = field(init=False, default=0.0)
    """Seconds of the pass before the first step, in which layers are compiled."""
    metrics: MetricsQueue = field(init=False)

    def __post_init__(self) -> None:
        self.metrics = MetricsQueue(
            config=self.config,
            topology=self.topology,
            progress=self.progress,
            sampler=self.sampler,
            recorder=self.recorder,
            is_scaled=self.train_step.precision == "fp16",
        )

    @property
    def stopped_by(self) -> Signals | None:
        """The signal that ended training before the last step, if one did."""
        return None if self.progress.is_at_end else self.stop.reason

    def train(self) -> None:
        """Run to the last step, or until all ranks have agreed to stop; every rank must call this.

        Raises:
            NonFiniteLossError: on every rank, at the same step.
            CheckpointError: on every rank, when one cannot write.
            MicroBatchTooLargeError: on every rank, when one has no memory for a single feature.
        """
        try:
            self._start()
            self._loop()
            self._finish()
        finally:
            gc.unfreeze()

    def _start(self) -> None:
        began = time.perf_counter()
        self.train_step.prime(self.progress.step)
        if self.profiler is not None:
            try:
                self.profiler.start()
            except ProfileError as error:
                self.recorder.log_event("profile_lost", str(error))
                self.profiler = None
        self.metrics.restart_clock()
        self.first_pass_time_s = time.perf_counter() - began
        if self._is_evaluation_missing():
            self._evaluate()

    def _loop(self) -> None:
        is_first = True
        while not self.progress.is_at_end and not self.stop.is_agreed:
            self._step()
            if is_first:
                # Do this after the first step, which creates the optimizer's state.
                self.checkpointer.prepare()
                settle()
                is_first = False
            self._read_metrics(lag=0 if self.topology.device.type == "cpu" else 2)
            if self.profiler is not None:
                self._profile(self.profiler)
            evaluates = self._is_due(self.config.eval_every_steps)
            if evaluates or self._is_due(self.config.checkpoint_every_steps):
                self._save("evaluation" if evaluates else "interval")
            if evaluates:
                self._evaluate()

    def _finish(self) -> None:
        self._read_metrics(lag=0)
        if self.profiler is not None:
            self.profiler.stop()
        if self.progress.is_at_end:
            self._save("final")
            self._evaluate()
        else:
            self._save("signal")
        self.checkpointer.finish()

    def _is_due(self, every: int | None) -> bool:
        """Whether work that is done every ``every`` steps is due; False once training stops."""
        is_under_way = not self.progress.is_at_end and not self.stop.is_agreed
        return every is not None and self.progress.step % every == 0 and is_under_way

    def _is_evaluation_missing(self) -> bool:
        """Whether the start step lacks its evaluation: the last attempt may have ended between save and evaluation."""
        if self.progress.step == 0:
            return self.config.eval_before
        return self._is_due(self.config.eval_every_steps) and self.progress.evaluated_step != self.progress.step

    def _step(self) -> None:
        """Start one step; its results stay on the device until they are read."""
        if self.recorder.is_run_removed or self.checkpointer.has_failed:
            # Vote to stop, so that all ranks stop after the same step; the save then raises the error on all ranks.
            self.stop.request()
        learning_rate = learning_rate_at(self.progress.step, self.progress.plan.num_steps, self.config)
        step_batch, output = self._run(learning_rate)
        self.progress.step += 1
        self.recorder.log_features(self.progress.step, output.fed_ids)
        is_profiled = self.profiler is not None and self.profiler.is_tracing
        self.metrics.push(step_batch, output, learning_rate, is_profiled=is_profiled)

    def _run(self, learning_rate: float) -> tuple[StepBatch, StepOutput]:
        """Run a step; while a micro-batch does not fit into memory, halve the micro-batch size and try again."""
        while True:
            step_batch = self.sampler.step_batch(self.progress.step)
            try:
                return step_batch, self.train_step.run(step_batch, learning_rate, self.stop.vote)
            except MicroBatchTooLargeError as error:
                if step_batch.largest.micro_batch_size == 1:
                    raise
                size = self.sampler.halve_micro_batches(step_batch)
                self.metrics.mark_slow()
                number = self.progress.step + 1
                message = f"step {number}: {error.what}; continuing with micro-batches of at most {size}"
                self.recorder.log_event("micro_batch_halved", message, step=number, micro_batch_size=size)

    def _read_metrics(self, lag: int) -> None:
        try:
            self.stop.count(self.metrics.read(lag))
        except NonFiniteLossError:
            # Commit the pending save: its values are finite.
            self.checkpointer.close()
            raise

    def _profile(self, profiler: StepProfiler) -> None:
        """Report a step to the profiler; writing the trace does not count as part of a step."""
        try:
            profile = profiler.step()
        except ProfileError as error:
            self.recorder.log_event("profile_lost", str(error))
            return
        if profile is not None:
            # Do not read metrics here: this rank would count votes to stop earlier than the ranks without a profiler.
            self.recorder.write("profile", profile)
            self.progress.is_profiled = True
            # Free the profiler and its trace, which are reference cycles.
            gc.unfreeze()
            settle()
            self.metrics.restart_clock()

    def _evaluate(self) -> None:
        if self.evaluate is None:
            return
        self._read_metrics(lag=0)
        # Commit the pending checkpoint first: if the evaluation fails, the steps before it are saved.
        self.checkpointer.finish()
        progress, model = self.progress, self.train_step.model
        evaluation = self.evaluate(model, progress.step)
        progress.evaluated_step = progress.step
        model.train()
        free_gathered_weights(model)
        if evaluation is not None:
            self.recorder.log_evaluation(evaluation)
            progress.best_f1 = max(evaluation.f1, progress.best_f1 or 0.0)
            self.checkpointer.keep_best(progress.step, evaluation.f1)
            found = {"best_f1": progress.best_f1, "evaluated_step": progress.step}
            self.checkpointer.amend(progress.step, found)
        self.metrics.restart_clock()

    def _save(self, reason: str) -> None:
        """Start a save, after checking that the losses of all steps so far are finite."""
        self._read_metrics(lag=0)
        self.checkpointer.start(self.progress.step, reason)
        self.metrics.restart_clock()


def settle() -> None:
    """Exclude all current objects from garbage collection; call it after the first step, when all parts are built.

    A trainer's libraries allocate some 400,000 objects. A full collection visits all of them and holds the GIL for 0.05
    to 0.15 s. Planning a checkpoint allocates enough objects to trigger full collections.
    """
    # Collect garbage first: frozen garbage, and the device memory that it holds, would never be freed.
    gc.collect()
    gc.freeze()
