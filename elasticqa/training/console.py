"""Text that a run prints on the terminal when it starts and when it ends."""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from elasticqa.config.train_config import TrainConfig
from elasticqa.distributed.topology import Topology
from elasticqa.run.attempt import Attempt
from elasticqa.run.metrics import Evaluation


def opening(config: TrainConfig, topology: Topology, setup: dict[str, Any], attempt: Attempt) -> str:
    """Return what will be trained, on which data, and on how many processes."""
    dataset, model = setup["dataset"], setup["model"]
    skipped = dataset["num_skipped_examples"]
    lines = [
        f"run {attempt.run_id}, attempt {attempt.number}: recipe {config.recipe}, {config.parallel} on "
        f"{topology.world_size} process(es), {topology.num_nodes} node(s), {topology.device.type}, "
        f"{setup['precision']}, {setup['attention']} attention",
        f"model {model['name']}: {model['num_parameters']:,} parameters",
        f"data {dataset['name']}: {dataset['num_train_features']:,} training features, "
        f"{dataset['num_eval_examples']:,} questions to evaluate on",
        f"steps {setup['start_step']} to {setup['num_steps']}, {config.global_batch_size} features each",
    ]
    if skipped:
        lines.append(f"skipped {skipped:,} training questions whose answer is not at its offset (--strict refuses)")
    return "\n".join(lines)


def closing(attempt: Attempt, end: dict[str, Any], evaluations: list[Evaluation], ingest_problem: str | None) -> str:
    """Return the results of a run, where its files are, and how to look at them."""
    directory = attempt.directory
    lines = [
        "",
        f"run {attempt.run_id} {end['status']}: {end['reason']}",
        f"  wall clock      {end['wall_clock_s']:.1f} s (steps {end['train_time_s']:.1f} s)"
        + ("" if attempt.number == 1 else f" of attempt {attempt.number}"),
    ]
    if end["final_loss"] is not None:
        lines.append(f"  loss            {end['final_loss']:.4f} (mean of the last epoch)")
    lines += [
        f"  step {evaluation.step:<10} EM {evaluation.em:.2f}  F1 {evaluation.f1:.2f}" for evaluation in evaluations
    ]
    lines.append(f"  run directory   {directory}")
    if end["status"] == "finished":
        lines.append(f"  model           {directory / 'model'}")
    else:
        lines.append("  to resume       run the same command again")
    lines += [
        f"  trace           {path}   (elasticqa profile, or Perfetto)"
        for path in sorted((directory / "traces").glob(f"attempt-{attempt.number:04d}-*.json.gz"))
    ]
    lines += [
        f"  TensorBoard     {_program('tensorboard')} --logdir {directory / 'tensorboard'}",
        f"  dashboard       {_program('uvicorn')} dashboard.app:app   (then /runs and /speedup)",
        f"  details         {_program('elasticqa')} show {attempt.run_id}",
    ]
    if ingest_problem is not None:
        lines.append(f"  the database is not up to date: {ingest_problem}; run elasticqa ingest")
    return "\n".join(lines)


def _program(name: str) -> str:
    """Return the command for a program of this environment: its name if the shell finds that one, else its path."""
    program = Path(sys.executable).with_name(name)
    found = shutil.which(name)
    if found is not None and Path(found).resolve() == program.resolve():
        return name
    return os.path.relpath(program) if program.is_relative_to(Path.cwd()) else str(program)
