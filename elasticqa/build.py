"""From a config to a trainer with all its parts, restored from the newest checkpoint of its run."""

import time
from contextlib import ExitStack
from typing import Any

from elasticqa.attempt import Attempt
from elasticqa.batching import StepPlanner
from elasticqa.checkpoint import Checkpointer
from elasticqa.config import BatchPlan, TrainConfig
from elasticqa.engine import EagerEngine
from elasticqa.evaluation import Evaluator
from elasticqa.model import QuestionAnswerer
from elasticqa.optim import Updater, build_optimizer
from elasticqa.parallel import wrap
from elasticqa.profiling import NoProfiler, StepProfiler
from elasticqa.record import Recorder
from elasticqa.signals import StopRequest
from elasticqa.task import Task
from elasticqa.tensorboard import TensorBoardLog
from elasticqa.topology import Topology, resolve_precision
from elasticqa.trainer import Trainer


def build_trainer(
    config: TrainConfig,
    topology: Topology,
    *,
    plan: BatchPlan,
    task: Task,
    answerer: QuestionAnswerer,
    attempt: Attempt,
    stop: StopRequest,
    stack: ExitStack,
) -> Trainer:
    """Return the trainer at step 0, the model wrapped; every rank must call this.

    Raises:
        ConfigError: precision or parallelism do not fit the devices.
    """
    precision = resolve_precision(config.precision, topology.device)
    model = wrap(answerer, config.parallel, topology, precision)
    optimizer = build_optimizer(model, config)
    tensorboard = None
    if topology.is_main:
        tensorboard = TensorBoardLog(attempt.directory / "tensorboard")
        stack.callback(tensorboard.close)
    evaluate = None
    if task.dev is not None:
        evaluate = Evaluator(
            features=task.dev,
            examples=task.dev_examples,
            topology=topology,
            precision=precision,
            max_answer_length=config.max_answer_length,
            run_directory=attempt.directory,
            attempt=attempt.number,
        )
    return Trainer(
        config=config,
        topology=topology,
        plan=plan,
        planner=StepPlanner(
            plan,
            task.train.lengths,
            seed=config.seed,
            rank=topology.rank,
            world_size=topology.world_size,
            micro_batch_size=config.micro_batch_size,
        ),
        engine=EagerEngine(
            topology=topology,
            features=task.train,
            model=model,
            optimizer=optimizer,
            updater=Updater(optimizer, config, precision, topology.device),
            precision=precision,
            seed=config.seed,
        ),
        recorder=Recorder(
            config,
            plan,
            journal=attempt.journal,
            tensorboard=tensorboard,
            fed_log=attempt.fed_log,
            is_main=topology.is_main,
        ),
        checkpointer=Checkpointer(attempt.directory / "checkpoints", topology, config.keep_checkpoints),
        evaluate=evaluate,
        profiler=NoProfiler(),
        stop=stop,
    )


def restore(trainer: Trainer) -> str | None:
    """Bring the trainer to its run's newest whole checkpoint and return its path in the run directory, if there is one.

    Every rank must call this.
    """
    found = trainer.checkpointer.newest_whole()
    if found is None:
        return None
    path, manifest = found
    engine = trainer.engine
    trainer.checkpointer.restore(path, engine.model, engine.optimizer, {"updater": engine.updater.state_dict()})
    trainer.load_progress(manifest.progress)
    name = f"{path.parent.name}/{path.name}"
    trainer.recorder.event("resume", f"resumed from {name}", step=manifest.step)
    return name


def plan_profile(trainer: Trainer, attempt: Attempt) -> None:
    """Give the trainer the profiler that its config asks for: on rank 0, for the steps that are left."""
    steps_left = trainer.plan.num_steps - trainer.step
    if trainer.config.profile and trainer.topology.is_main and steps_left:
        trainer.profiler = StepProfiler(
            attempt.directory,
            attempt=attempt.number,
            rank=trainer.topology.rank,
            step=trainer.step,
            num_steps=steps_left,
            device_type=trainer.topology.device.type,
        )


def setup_facts(
    trainer: Trainer, task: Task, answerer: QuestionAnswerer, attempt: Attempt, resumed_from: str | None
) -> dict[str, Any]:
    """Return the journal's `setup` line."""
    return {
        "dataset": task.facts,
        "model": {
            "name": trainer.config.model,
            "model_type": answerer.spec.model_type,
            "num_parameters": answerer.num_parameters,
            "flops_per_token": answerer.flops_per_token,
        },
        "num_steps": trainer.plan.num_steps,
        "steps_per_epoch": trainer.plan.steps_per_epoch,
        "start_step": trainer.step,
        "resumed_from": resumed_from,
        "precision": trainer.engine.precision,
        "attention": "packed" if answerer.spec.is_packed else "padded",
        "setup_time_s": time.time() - attempt.started_at,
    }
