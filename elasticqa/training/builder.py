"""From a config to a trainer with all its parts, restored from the newest checkpoint of its run."""

import time
from contextlib import ExitStack
from typing import Any

import torch

from elasticqa.checkpoint.checkpointer import Checkpointer
from elasticqa.checkpoint.retention import SET_ASIDE
from elasticqa.config.batch_plan import BatchPlan, batch_plan
from elasticqa.config.train_config import TrainConfig
from elasticqa.data.sampler import StepPlanner
from elasticqa.data.squad.features import Features
from elasticqa.data.task import Task
from elasticqa.distributed.topology import Topology, resolve_precision
from elasticqa.elastic.signals import StopRequest
from elasticqa.models.acceleration import accelerate, check_equal, compile_layers, keep_compiled
from elasticqa.models.fused_layers import fuse
from elasticqa.models.parallelize import DTYPES, is_sharded, wrap
from elasticqa.models.question_answering import QuestionAnswerer, feature_losses
from elasticqa.profiling.step_profiler import NoProfiler, StepProfiler
from elasticqa.run.attempt import Attempt
from elasticqa.run.home import home
from elasticqa.run.recorder import Recorder
from elasticqa.run.tensorboard import TensorBoardLog
from elasticqa.training.evaluation import Evaluator
from elasticqa.training.graph_step import CapturedEngine
from elasticqa.training.optimizer import Updater, build_optimizer
from elasticqa.training.resume import changed_since
from elasticqa.training.train_step import EagerEngine, Engine
from elasticqa.training.trainer import Trainer


def build_trainer(
    topology: Topology,
    *,
    task: Task,
    answerer: QuestionAnswerer,
    attempt: Attempt,
    stop: StopRequest,
    stack: ExitStack,
) -> Trainer:
    """Return the trainer at step 0, the model wrapped; every rank must call this.

    Raises:
        ConfigError: precision or parallelism do not fit the devices, or the batch does not fit the world.
    """
    config = attempt.config
    plan = batch_plan(config, len(task.train), topology.world_size)
    engine = build_engine(config, topology, plan=plan, features=task.train, answerer=answerer, stack=stack)
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
            precision=engine.precision,
            max_answer_length=config.max_answer_length,
            run_directory=attempt.directory,
            attempt=attempt.number,
        )
    recorder = Recorder(
        config,
        plan,
        journal=attempt.journal,
        tensorboard=tensorboard,
        fed_log=attempt.fed_log,
        is_main=topology.is_main,
    )
    checkpointer = Checkpointer(
        attempt.directory / "checkpoints", topology, config.keep_checkpoints, flush_record=recorder.flush
    )
    stack.callback(checkpointer.close)
    planner = StepPlanner(
        plan,
        task.train.lengths,
        seed=config.seed,
        rank=topology.rank,
        world_size=topology.world_size,
        micro_batch_size=attempt.micro_batch_size,
    )
    if topology.device.type == "cuda":
        # On a CPU the thread would take from the step what it saves.
        engine.look_ahead(planner)
    return Trainer(
        config=config,
        topology=topology,
        plan=plan,
        planner=planner,
        engine=engine,
        recorder=recorder,
        checkpointer=checkpointer,
        evaluate=evaluate,
        profiler=NoProfiler(),
        stop=stop,
        began_at=attempt.started_at,
    )


def build_engine(
    config: TrainConfig,
    topology: Topology,
    *,
    plan: BatchPlan,
    features: Features,
    answerer: QuestionAnswerer,
    stack: ExitStack,
) -> Engine:
    """Return what runs the steps, the model wrapped; every rank must call this.

    Raises:
        ConfigError: precision, parallelism or what was asked for to be faster do not fit the devices, or ranks differ.
    """
    precision = resolve_precision(config.precision, topology.device)
    acceleration = accelerate(config, topology, answerer, precision, plan.num_steps)
    check_equal(topology, precision, acceleration)
    if topology.device.type == "cuda" or acceleration.is_compiled:
        keep_compiled(home() / "cache")
    if acceleration.is_captured:
        # A capture needs a stream of its own. Here it is the stream of everything from the wrapping on: DDP's hooks
        # stay on the stream that they were made on.
        stack.enter_context(torch.cuda.stream(torch.cuda.Stream(topology.device)))
    model = wrap(answerer, config.parallel, topology, precision, is_resharded=acceleration.is_resharded)
    if acceleration.is_compiled:
        compile_layers(model)
    if acceleration.is_fused:
        fuse(model, DTYPES[precision], is_sharded=is_sharded(model))
    optimizer = build_optimizer(model, config)
    eager = EagerEngine(
        topology=topology,
        features=features,
        model=model,
        optimizer=optimizer,
        updater=Updater(optimizer, config, precision, topology.device),
        precision=precision,
        seed=config.seed,
        losses=torch.compile(feature_losses, dynamic=True) if acceleration.is_compiled else feature_losses,
    )
    engine: Engine = eager
    if acceleration.is_captured:
        engine = CapturedEngine(
            eager,
            global_batch_size=plan.global_batch_size,
            micro_batch_size=config.micro_batch_size,
            max_length=config.max_length,
            has_weight_kernel=acceleration.is_fused,
        )
    stack.callback(engine.close)
    return engine


def restore(trainer: Trainer, attempt: Attempt) -> str | None:
    """Bring the trainer to the checkpoint to go on from and return its path in the run directory, if there is one.

    That is the newest whole one of the run, or the one that was asked for. Every rank must call this.
    """
    checkpointer, engine = trainer.checkpointer, trainer.engine
    changes = changed_since(attempt.directory, attempt.number, attempt.config)
    if changes:
        listed = "; ".join(f"{name} was {old!r}, is {new!r}" for name, (old, new) in changes.items())
        trainer.recorder.event("config_changed", f"changed since the attempt before: {listed}", changes=changes)
    shortage = attempt.shortage
    if shortage is not None and shortage.attempt == attempt.number - 1:
        size = attempt.micro_batch_size
        message = f"{shortage.what} in the attempt before; goes on with micro-batches of at most {size}"
        trainer.recorder.event("micro_batch_halved", message, step=None, micro_batch_size=size)
    found = checkpointer.newest_whole() if attempt.checkpoint is None else checkpointer.named(attempt.checkpoint)
    for message in checkpointer.skipped:
        trainer.recorder.write("event", {"name": "checkpoint_skipped", "message": message, "data": {}})
    if found is None:
        return None
    path, manifest = found
    checkpointer.restore(path, engine.model, engine.optimizer, {"updater": engine.updater.state_dict()})
    trainer.load_progress(manifest.progress)
    name = f"{path.parent.name}/{path.name}"
    trainer.recorder.event("resume", f"resumed from {name}", step=manifest.step)
    if attempt.checkpoint is not None:
        newer = checkpointer.set_newer_aside(manifest.step)
        if newer:
            message = f"newer than {path.name}, so moved to {path.parent.name}/{SET_ASIDE}: {', '.join(newer)}"
            trainer.recorder.event("checkpoints_set_aside", message, names=newer)
    return name


def plan_profile(trainer: Trainer, attempt: Attempt) -> None:
    """Give the trainer the profiler that its config asks for: on rank 0, for one stretch of the run's steps.

    One of which no trace was written goes on from the step that the attempt begins at.
    """
    is_wanted = trainer.config.profile and trainer.topology.is_main and not trainer.is_profiled
    if is_wanted and trainer.step < trainer.plan.num_steps:
        trainer.profiler = StepProfiler(
            attempt.directory,
            attempt=attempt.number,
            rank=trainer.topology.rank,
            step=trainer.step,
            num_steps=trainer.plan.num_steps,
            device_type=trainer.topology.device.type,
        )


def setup_facts(
    trainer: Trainer,
    task: Task,
    answerer: QuestionAnswerer,
    attempt: Attempt,
    resumed_from: str | None,
    model_digest: str | None,
) -> dict[str, Any]:
    """Return the journal's `setup` line.

    Args:
        trainer: restored.
        task: of the run.
        answerer: the model, wrapped or not.
        attempt: this one.
        resumed_from: checkpoint, below the run directory.
        model_digest: of the model's files; of the trainer's rank 0, which alone writes.
    """
    acceleration = accelerate(
        trainer.config, trainer.topology, answerer, trainer.engine.precision, trainer.plan.num_steps
    )
    return {
        "dataset": task.facts,
        "model": {
            "name": trainer.config.model,
            "digest": model_digest,
            "model_type": answerer.spec.model_type,
            "num_parameters": answerer.num_parameters,
            "flops_per_token": answerer.flops_per_token,
        },
        "num_steps": trainer.plan.num_steps,
        "steps_per_epoch": trainer.plan.steps_per_epoch,
        "start_step": trainer.step,
        "resumed_from": resumed_from,
        "precision": trainer.engine.precision,
        "attention": acceleration.attention,
        "is_compiled": acceleration.is_compiled,
        "is_captured": acceleration.is_captured,
        "is_fused": acceleration.is_fused,
        "is_resharded": acceleration.is_resharded,
        "setup_time_s": time.time() - attempt.started_at,
    }
