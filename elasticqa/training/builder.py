"""The parts of a trainer, built from a config and the data and model that were loaded."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import torch

from elasticqa.checkpoint.checkpointer import Checkpointer
from elasticqa.config.batch_plan import BatchPlan
from elasticqa.config.train_config import TrainConfig
from elasticqa.data.sampler import Sampler
from elasticqa.data.squad.features import Features
from elasticqa.distributed.topology import Topology, resolve_precision
from elasticqa.distributed.torch_internals import set_compile_caches
from elasticqa.elastic.signals import StopRequest
from elasticqa.models.acceleration import check_ranks_agree, choose_acceleration, compile_layers
from elasticqa.models.fused_layers import fuse_layers
from elasticqa.models.parallelize import DTYPES, is_sharded, parallelize
from elasticqa.models.question_answering import QuestionAnswerer, feature_losses
from elasticqa.profiling.step_profiler import StepProfiler
from elasticqa.run.attempt import Attempt
from elasticqa.run.home import home
from elasticqa.run.recorder import Recorder
from elasticqa.run.tensorboard import TensorBoardLog
from elasticqa.training.app_state import app_state_of
from elasticqa.training.evaluation import Evaluator
from elasticqa.training.graph_step import CudaGraphTrainStep
from elasticqa.training.loading import Loaded
from elasticqa.training.optimizer import Updater, build_optimizer
from elasticqa.training.progress import Progress
from elasticqa.training.train_step import TrainStep
from elasticqa.training.trainer import Trainer


def build_trainer(topology: Topology, loaded: Loaded, attempt: Attempt, stop: StopRequest, stack: ExitStack) -> Trainer:
    """Return the trainer at step 0, its model parallelized; every rank must call this.

    Raises:
        ConfigError: precision or acceleration do not fit the devices, or ranks differ in them.
    """
    config, plan, task = attempt.config, attempt.plan, loaded.task
    train_step = build_train_step(
        config, topology, plan=plan, features=task.train, answerer=loaded.answerer, stack=stack
    )
    tensorboard = None
    if topology.is_main:
        tensorboard = TensorBoardLog(attempt.directory / "tensorboard")
        stack.callback(tensorboard.close)
    recorder = Recorder(
        config=config,
        plan=plan,
        journal=attempt.journal,
        tensorboard=tensorboard,
        feature_log=attempt.feature_log,
        is_main=topology.is_main,
    )
    progress = Progress(plan=plan, began_at=attempt.started_at)
    checkpointer = Checkpointer(
        attempt.directory / "checkpoints",
        topology,
        app_state_of(train_step, progress),
        keep=config.keep_checkpoints,
        config=config.to_dict(),
        record=recorder,
    )
    stack.callback(checkpointer.close)
    sampler = Sampler(
        plan,
        task.train.lengths,
        seed=config.seed,
        rank=topology.rank,
        world_size=topology.world_size,
        micro_batch_size=attempt.micro_batch_size,
    )
    if topology.device.type == "cuda":
        # Do not prefetch on a CPU: the thread would take CPU time from the step.
        train_step.prefetch(sampler)
    evaluate = None
    if task.dev is not None:
        evaluate = Evaluator(
            features=task.dev,
            examples=task.dev_examples,
            topology=topology,
            precision=train_step.precision,
            max_answer_length=config.max_answer_length,
            run_directory=attempt.directory,
            attempt=attempt.number,
        )
    return Trainer(
        config=config,
        topology=topology,
        sampler=sampler,
        train_step=train_step,
        recorder=recorder,
        checkpointer=checkpointer,
        progress=progress,
        evaluate=evaluate,
        stop=stop,
    )


def build_train_step(
    config: TrainConfig,
    topology: Topology,
    *,
    plan: BatchPlan,
    features: Features,
    answerer: QuestionAnswerer,
    stack: ExitStack,
) -> TrainStep:
    """Parallelize the model and return its training step; every rank must call this.

    Raises:
        ConfigError: precision, strategy or acceleration do not fit the devices, or ranks differ in them.
    """
    precision = resolve_precision(config.precision, topology.device)
    acceleration = choose_acceleration(config, topology, answerer, precision, plan.num_steps)
    check_ranks_agree(topology, precision, acceleration)
    if topology.device.type == "cuda" or acceleration.is_compiled:
        set_compile_caches(home() / "cache")
    if acceleration.is_captured:
        # A CUDA graph capture needs a non-default stream. All later work uses this stream, since DDP's hooks stay on
        # the stream on which they were created.
        stack.enter_context(torch.cuda.stream(torch.cuda.Stream(topology.device)))
    model = parallelize(answerer, config.parallel, topology, precision, is_resharded=acceleration.is_resharded)
    if acceleration.is_compiled:
        compile_layers(model)
    if acceleration.is_fused:
        fuse_layers(model, DTYPES[precision], is_sharded=is_sharded(model))
    make: Callable[..., TrainStep] = TrainStep
    if acceleration.is_captured:
        make = partial(
            CudaGraphTrainStep,
            global_batch_size=plan.global_batch_size,
            micro_batch_size=config.micro_batch_size,
            max_length=config.max_length,
            has_adamw_kernel=acceleration.is_fused,
        )
    optimizer = build_optimizer(model, config)
    train_step = make(
        topology=topology,
        features=features,
        model=model,
        optimizer=optimizer,
        updater=Updater(optimizer, config, precision, topology.device),
        precision=precision,
        seed=config.seed,
        losses=torch.compile(feature_losses, dynamic=True) if acceleration.is_compiled else feature_losses,
    )
    stack.callback(train_step.close)
    return train_step


def add_profiler(trainer: Trainer, attempt: Attempt) -> None:
    """Give the trainer a profiler if its config asks for one and no trace has been written yet, on rank 0.

    Call it after the restore: the profiled steps depend on the step at which the attempt starts.
    """
    progress = trainer.progress
    is_wanted = trainer.config.profile and trainer.topology.is_main and not progress.is_profiled
    if is_wanted and not progress.is_at_end:
        trainer.profiler = StepProfiler(
            attempt.directory,
            attempt=attempt.number,
            rank=trainer.topology.rank,
            step=progress.step,
            num_steps=progress.plan.num_steps,
            device_type=trainer.topology.device.type,
        )
