"""Start an attempt: load the checkpoint to resume from, and record the setup and the changed options."""

import time
from dataclasses import asdict
from typing import Any

from elasticqa.checkpoint.retention import SET_ASIDE
from elasticqa.models.acceleration import choose_acceleration
from elasticqa.run.attempt import Attempt
from elasticqa.training.loading import Loaded
from elasticqa.training.resume import changed_since
from elasticqa.training.trainer import Trainer


def restore(trainer: Trainer, attempt: Attempt) -> str | None:
    """Load the checkpoint to resume from and return its path in the run directory; None if there is none.

    It is the one that ``--resume`` names, else the newest whole one of the run. Every rank must call this.
    """
    checkpointer, recorder = trainer.checkpointer, trainer.recorder
    _record_changes(trainer, attempt)
    found = checkpointer.newest_whole() if attempt.checkpoint is None else checkpointer.named(attempt.checkpoint)
    for message in checkpointer.skipped:
        recorder.write("event", {"name": "checkpoint_skipped", "message": message, "data": {}})
    if found is None:
        return None
    path, manifest = found
    checkpointer.restore(path, manifest)
    name = f"{path.parent.name}/{path.name}"
    recorder.log_event("resume", f"resumed from {name}", step=manifest.step)
    if attempt.checkpoint is not None:
        newer = checkpointer.set_newer_aside(manifest.step)
        if newer:
            message = f"newer than {path.name}, so moved to {path.parent.name}/{SET_ASIDE}: {', '.join(newer)}"
            recorder.log_event("checkpoints_set_aside", message, names=newer)
    return name


def _record_changes(trainer: Trainer, attempt: Attempt) -> None:
    recorder = trainer.recorder
    changes = changed_since(attempt.directory, attempt.number, attempt.config)
    if changes:
        listed = "; ".join(f"{name} was {old!r}, is {new!r}" for name, (old, new) in changes.items())
        recorder.log_event("config_changed", f"changed since the previous attempt: {listed}", changes=changes)
    oom = attempt.earlier_oom
    if oom is not None and oom.attempt == attempt.number - 1:
        size = attempt.micro_batch_size
        message = f"{oom.what} in the previous attempt; continuing with micro-batches of at most {size}"
        recorder.log_event("micro_batch_halved", message, step=None, micro_batch_size=size)


def setup_facts(trainer: Trainer, loaded: Loaded, attempt: Attempt, resumed_from: str | None) -> dict[str, Any]:
    """Return the fields of the `setup` line; the trainer must be restored."""
    config, plan, precision = trainer.config, trainer.progress.plan, trainer.train_step.precision
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
        **asdict(acceleration),
        "setup_time_s": time.time() - attempt.started_at,
    }
