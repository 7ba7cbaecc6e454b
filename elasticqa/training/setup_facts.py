"""What an attempt trains, from which step and how: the journal's `setup` line."""

import time
from typing import Any

from elasticqa.models.acceleration import choose_acceleration
from elasticqa.run.attempt import Attempt
from elasticqa.training.loading import Loaded
from elasticqa.training.trainer import Trainer


def setup_facts(trainer: Trainer, loaded: Loaded, attempt: Attempt, resumed_from: str | None) -> dict[str, Any]:
    """Return the fields of the `setup` line.

    Args:
        trainer: restored.
        loaded: data and model.
        attempt: that is about to train.
        resumed_from: path of the checkpoint below the run directory, if there is one.
    """
    config, plan, precision = trainer.config, trainer.plan, trainer.train_step.precision
    answerer = loaded.answerer
    acceleration = choose_acceleration(config, trainer.topology, answerer, precision, plan.num_steps)
    return {
        "dataset": loaded.task.facts,
        "model": {
            "name": config.model,
            "digest": loaded.digests.get("model"),
            "model_type": answerer.spec.model_type,
            "num_parameters": answerer.num_parameters,
            "flops_per_token": answerer.flops_per_token,
        },
        "num_steps": plan.num_steps,
        "steps_per_epoch": plan.steps_per_epoch,
        "start_step": trainer.progress.step,
        "resumed_from": resumed_from,
        "precision": precision,
        "attention": acceleration.attention,
        "is_compiled": acceleration.is_compiled,
        "is_captured": acceleration.is_captured,
        "is_fused": acceleration.is_fused,
        "is_resharded": acceleration.is_resharded,
        "setup_time_s": time.time() - attempt.started_at,
    }
