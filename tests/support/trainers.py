"""A trainer of a few steps with real parts and a made-up evaluation."""

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from elasticqa.checkpoint.checkpointer import Checkpointer
from elasticqa.config.batch_plan import batch_plan
from elasticqa.config.train_config import TrainConfig
from elasticqa.data.sampler import Sampler
from elasticqa.distributed.topology import Topology
from elasticqa.elastic.signals import StopRequest
from elasticqa.run.journal import FeatureLog, Journal
from elasticqa.run.metrics import Evaluation
from elasticqa.run.recorder import Recorder
from elasticqa.training.app_state import app_state_of
from elasticqa.training.progress import Progress
from elasticqa.training.trainer import Trainer
from tests.support.train_steps import BATCH, FEATURES, new_train_step
from tests.support.training import EVALUATION, journal

ALONE = Topology.from_env({})


def evaluation(step: int) -> Evaluation:
    return replace(EVALUATION, step=step, f1=float(50 - step))


def trainer(directory: Path, topology: Topology = ALONE, **changes: Any) -> Trainer:
    """Return a trainer of 3 steps an epoch whose evaluation leaves the model in evaluation mode, as the real one."""
    config = TrainConfig(
        **{"global_batch_size": BATCH, "epochs": 3, "learning_rate": 1e-2, "eval_before": True, **changes}
    )
    plan = batch_plan(config, len(FEATURES), topology.world_size)

    def evaluate(model: nn.Module, step: int) -> Evaluation | None:
        model.eval()
        return evaluation(step) if topology.is_main else None

    train_step = new_train_step(topology, "ddp")
    progress = Progress(plan=plan)
    recorder = Recorder(
        config=config,
        plan=plan,
        journal=Journal(directory, 1, 0) if topology.is_main else None,
        tensorboard=None,
        feature_log=FeatureLog(directory, 1, topology.rank),
        is_main=topology.is_main,
    )
    return Trainer(
        config=config,
        topology=topology,
        sampler=Sampler(
            plan,
            FEATURES.lengths,
            seed=config.seed,
            rank=topology.rank,
            world_size=topology.world_size,
            micro_batch_size=2,
        ),
        train_step=train_step,
        recorder=recorder,
        checkpointer=Checkpointer(
            directory / "checkpoints",
            topology,
            app_state_of(train_step, progress),
            keep=9,
            config=config.to_dict(),
            record=recorder,
        ),
        progress=progress,
        evaluate=evaluate,
        stop=StopRequest(),
    )


def lines(directory: Path, made: Trainer) -> dict[str, list[dict[str, Any]]]:
    made.recorder.flush()
    return journal(directory)


def request(made: Trainer, at: int) -> None:
    """Ask to stop during the step numbered ``at`` from 0."""
    if made.progress.step == at:
        made.stop.received = signal.SIGUSR1
