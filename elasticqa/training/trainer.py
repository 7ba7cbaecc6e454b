"""The loop: it receives its parts and runs from the restored step to the last."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from signal import Signals
from typing import Any

from torch import nn

from elasticqa.checkpoint.async_writer import Committed
from elasticqa.checkpoint.checkpointer import Checkpointer
from elasticqa.checkpoint.manifest import Manifest
from elasticqa.config.batch_plan import BatchPlan
from elasticqa.config.train_config import TrainConfig
from elasticqa.data.sampler import StepPlan, StepPlanner
from elasticqa.distributed.topology import Topology
from elasticqa.elastic.signals import StopRequest
from elasticqa.errors import DoesNotFitError
from elasticqa.models.parallelize import free_gathered
from elasticqa.profiling.step_profiler import NoProfiler, ProfileError, StepProfiler
from elasticqa.run.metrics import Evaluation
from elasticqa.run.recorder import Recorder
from elasticqa.training import garbage_collection
from elasticqa.training.optimizer import learning_rate_at
from elasticqa.training.step_metrics import NonFiniteLossError, StepFigures
from elasticqa.training.train_step import Engine, StepOutput

WARMUP_STEPS = 5
"""Steps after a start that throughput leaves out: allocator, autotuning and caches settle in them."""


@dataclass(kw_only=True)
class Trainer:
    """Trains from ``step`` to the end of the plan.

    ``stopped_by`` tells after ``train`` which signal ended it early, if one did.
    """

    config: TrainConfig
    topology: Topology
    plan: BatchPlan
    planner: StepPlanner
    engine: Engine
    recorder: Recorder
    checkpointer: Checkpointer
    evaluate: Callable[[nn.Module, int], Evaluation | None] | None
    profiler: StepProfiler | NoProfiler
    stop: StopRequest
    step: int = 0
    restored_train_time_s: float = 0.0
    first_pass_time_s: float = 0.0
    """Of the pass before the first step, in which layers are compiled."""
    best_f1: float | None = None
    began_at: float = field(default_factory=time.time)
    """Unix seconds when this attempt began."""
    restored_wall_clock_s: float = 0.0
    evaluated_step: int | None = None
    """That was evaluated last."""
    is_profiled: bool = False
    """A trace of this run has been written."""
    stopped_by: Signals | None = None
    figures: StepFigures = field(init=False)
    _steps_here: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        """Begin without a step."""
        is_scaled = self.engine.precision == "fp16"
        self.figures = StepFigures(
            self.config, self.topology, self.plan, self.planner, self.recorder, is_scaled=is_scaled
        )

    def train(self) -> None:
        """Run to the last step, or until all ranks have agreed to stop; every rank must call this.

        Raises:
            NonFiniteLossError: on every rank, at the same step.
            CheckpointError: on every rank, when one cannot write.
            DoesNotFitError: on every rank, when one has no memory for a single feature.
        """
        try:
            self._train()
        finally:
            garbage_collection.unsettle()

    def _train(self) -> None:
        began = time.perf_counter()
        self.engine.prime(self.step)
        self._start_profiler()
        self.figures.restart_clock()
        self.first_pass_time_s = time.perf_counter() - began
        if self._is_evaluation_owed():
            self._evaluate()
        while self.step < self.plan.num_steps and not self.figures.is_stop_agreed:
            self._train_step()
            if self._steps_here == 1:
                self._prepare()
            self._read_figures(lag=0 if self.topology.device.type == "cpu" else 2)
            self._profile()
            evaluates = self._is_due(self.config.eval_every_steps)
            if evaluates or self._is_due(self.config.checkpoint_every_steps):
                self._save("evaluation" if evaluates else "interval")
            if evaluates:
                self._evaluate()
        self._read_figures(lag=0)
        self.profiler.stop()
        if self.figures.is_stop_agreed and self.step < self.plan.num_steps:
            self.stopped_by = self.stop.received or Signals.SIGTERM
            self._save("signal")
        else:
            self._save("final")
            self._evaluate()
        self.checkpointer.finish()

    def progress(self) -> dict[str, Any]:
        """Return the scalars that a checkpoint keeps; the rest follows from the step.

        Random numbers too: those of a step are drawn from (seed, step, rank), so no generator has a state to keep.
        """
        return {
            "step": self.step,
            "samples_seen": self.plan.samples_seen(self.step),
            "train_time_s": self.figures.train_time_s,
            "wall_clock_s": self.restored_wall_clock_s + time.time() - self.began_at,
            "best_f1": self.best_f1,
            "evaluated_step": self.evaluated_step,
            "is_profiled": self.is_profiled,
            "last_losses": list(self.figures.last_losses),
        }

    def load_progress(self, progress: dict[str, Any]) -> None:
        """Go on from what ``progress`` returned."""
        self.step = progress["step"]
        self.figures.train_time_s = self.restored_train_time_s = progress["train_time_s"]
        self.restored_wall_clock_s = progress["wall_clock_s"]
        self.best_f1 = progress["best_f1"]
        self.evaluated_step = progress.get("evaluated_step")
        self.is_profiled = progress["is_profiled"]
        self.figures.last_losses.extend(progress["last_losses"])

    def _is_due(self, every: int | None) -> bool:
        """Whether what is done every so many steps is due; the grace period before an end is not for it."""
        is_on_the_way = self.step < self.plan.num_steps and not self.figures.is_stop_agreed
        return every is not None and self.step % every == 0 and is_on_the_way

    def _is_evaluation_owed(self) -> bool:
        """Whether the step to begin with is to be evaluated still: an attempt may end between save and evaluation."""
        if self.step == 0:
            return self.config.eval_before
        return self._is_due(self.config.eval_every_steps) and self.evaluated_step != self.step

    def _train_step(self) -> None:
        """Run one step; its figures stay on the device."""
        learning_rate = learning_rate_at(self.step, self.plan.num_steps, self.config)
        plan, output = self._run(learning_rate)
        self.step += 1
        self.recorder.fed(self.step, output.fed_ids)
        self._steps_here += 1
        is_warmup = self._steps_here <= WARMUP_STEPS or self.profiler.is_tracing
        self.figures.push(plan, output, learning_rate, is_warmup=is_warmup)

    def _prepare(self) -> None:
        """Do what has to wait for the first step, and would disturb later ones."""
        engine = self.engine
        self.checkpointer.prepare(engine.model, engine.optimizer, {"updater": engine.updater.state_dict()})
        garbage_collection.settle()

    def _run(self, learning_rate: float) -> tuple[StepPlan, StepOutput]:
        """Run a step, with micro-batches of half the size as often as one does not fit; features stay the same."""
        # All ranks stop at one step then, and the save there raises what the one before met.
        is_lost = self.recorder.is_gone or self.checkpointer.has_failed
        wants_stop = self.stop.received is not None or is_lost
        while True:
            plan = self.planner.step_plan(self.step)
            try:
                return plan, self.engine.run(plan, learning_rate, wants_stop=wants_stop)
            except DoesNotFitError as error:
                if plan.largest.num_features == 1:
                    raise
                size = self.planner.halve(plan)
                self.figures.slow()
                self.recorder.event(
                    "micro_batch_halved",
                    f"step {self.step + 1}: {error.what}; goes on with micro-batches of at most {size}",
                    step=self.step + 1,
                    micro_batch_size=size,
                )

    def _read_figures(self, lag: int) -> None:
        try:
            self.figures.read(lag)
        except NonFiniteLossError:
            # What has been found finite is still to be kept.
            self.checkpointer.close()
            raise

    def _start_profiler(self) -> None:
        try:
            self.profiler.start()
        except ProfileError as error:
            self.recorder.event("profile_lost", str(error))
            self.profiler = NoProfiler()

    def _profile(self) -> None:
        """Tell the profiler that a step is done; writing its trace is no part of a step."""
        try:
            profile = self.profiler.step()
        except ProfileError as error:
            self.recorder.event("profile_lost", str(error))
            return
        if profile is not None:
            # Figures of the traced steps are read later, as on the other ranks, which have no profiler: who reads them
            # here might learn of a request to stop before the others do.
            self.recorder.write("profile", profile)
            self.is_profiled = True
            # The profiler holds itself, and what it traced.
            garbage_collection.unsettle()
            garbage_collection.settle()
            self.figures.restart_clock()

    def _evaluate(self) -> None:
        if self.evaluate is None:
            return
        self._read_figures(lag=0)
        # An evaluation that fails must not cost the steps before it.
        self.checkpointer.finish()
        evaluation = self.evaluate(self.engine.model, self.step)
        self.evaluated_step = self.step
        self.engine.model.train()
        free_gathered(self.engine.model)
        if evaluation is not None:
            self.recorder.evaluation(evaluation)
            self.best_f1 = max(evaluation.f1, self.best_f1 or 0.0)
            self.checkpointer.keep_best(self.step, evaluation.f1)
            self.checkpointer.amend(self.step, {"best_f1": self.best_f1, "evaluated_step": self.step})
        self.figures.restart_clock()

    def _save(self, reason: str) -> None:
        """Begin to save; the figures of every step in it have been read and found finite."""
        self._read_figures(lag=0)
        engine = self.engine
        manifest = Manifest(self.step, self.progress(), self.config.to_dict(), reason=reason)
        extra = {"updater": engine.updater.state_dict()}
        self.checkpointer.start(manifest, engine.model, engine.optimizer, extra, self._note_checkpoint)
        self.figures.restart_clock()

    def _note_checkpoint(self, committed: Committed) -> None:
        path, manifest = committed.path, committed.manifest
        self.recorder.write(
            "checkpoint",
            {
                "step": manifest.step,
                "path": f"{path.parent.name}/{path.name}",
                "bytes": manifest.num_bytes,
                "save_time_s": committed.save_time_s,
                "blocked_time_s": committed.blocked_time_s,
                "reason": manifest.reason,
            },
        )
