"""One rank of a training run: main() checks the request, runs it and says how it ended."""

import math
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

from torch.distributed.elastic.multiprocessing.errors import record

from elasticqa.attempt import begin, write_end
from elasticqa.build import build_trainer, plan_profile, restore, setup_facts
from elasticqa.config import TrainConfig, batch_plan
from elasticqa.errors import CheckpointError, ConfigError, DataError
from elasticqa.export import save_pretrained
from elasticqa.flags import parse_config
from elasticqa.home import HomeError, home
from elasticqa.hub import resolve_model
from elasticqa.model import QuestionAnswerer, load_model
from elasticqa.parallel import check_parallel
from elasticqa.signals import StopRequest
from elasticqa.summary import closing, opening
from elasticqa.task import load_task
from elasticqa.topology import Topology, resolve_precision
from elasticqa.trainer import NonFiniteLossError, Trainer

PROCESS_GROUP_TIMEOUT = timedelta(minutes=5)
EXIT_FAILED = 1
EXIT_BAD_REQUEST = 2
EXIT_PREEMPTED = 143
"""128 + SIGTERM: a scheduler reads it as the end that it asked for."""


@record
def main(argv: Sequence[str] | None = None) -> int:
    """Train one run, or go on with it; returns the exit status of this rank."""
    stop = StopRequest()
    stop.install()
    topology: Topology | None = None
    try:
        config = parse_config(sys.argv[1:] if argv is None else argv)
        topology = Topology.from_env()
        with topology.process_group(PROCESS_GROUP_TIMEOUT):
            return run(config, topology, stop)
    except (ConfigError, DataError, HomeError) as error:
        _complain(error, topology)
        return EXIT_BAD_REQUEST
    except (NonFiniteLossError, CheckpointError) as error:
        _complain(error, topology)
        return EXIT_FAILED


def _complain(error: Exception, topology: Topology | None) -> None:
    """Print one line a node: its ranks fail alike."""
    if topology is None or topology.is_node_main:
        sys.stderr.write(f"elasticqa: {error}\n")


def run(config: TrainConfig, topology: Topology, stop: StopRequest) -> int:
    """Build the parts, train, and record how it ended; every rank must call this.

    Nothing is written before data and model are known to be good.
    """
    check_parallel(config.parallel, topology.world_size, is_distributed=topology.is_distributed)
    resolve_precision(config.precision, topology.device)
    task = load_task(config, home())
    batch_plan(config, len(task.train), topology.world_size)
    bare, spec = load_model(resolve_model(config.model), config)
    answerer = QuestionAnswerer(bare, spec)
    with ExitStack() as stack:
        attempt = begin(config, topology, stack)
        try:
            trainer = build_trainer(topology, task=task, answerer=answerer, attempt=attempt, stop=stop, stack=stack)
            setup = setup_facts(trainer, task, answerer, attempt, resumed_from=restore(trainer))
            plan_profile(trainer, attempt)
            trainer.recorder.write("setup", setup)
            trainer.recorder.say(opening(attempt.config, topology, setup, attempt))
            trainer.train()
            if trainer.stopped_by is None:
                save_pretrained(trainer.engine.model, bare, task.tokenizer, attempt.directory / "model", topology)
        except BaseException as error:
            write_end(attempt, "failed", _reason(error), is_fatal=isinstance(error, NonFiniteLossError))
            raise
        if trainer.stopped_by is None:
            end = write_end(attempt, "finished", "trained to the last step", **figures(trainer))
        else:
            end = write_end(attempt, "preempted", f"asked to stop by {trainer.stopped_by.name}", **figures(trainer))
        trainer.recorder.totals(end)
    if topology.is_main:
        ingested = ingest()
        trainer.recorder.say(closing(attempt, end, trainer.recorder.evaluations, ingested))
    return 0 if trainer.stopped_by is None else EXIT_PREEMPTED


def _reason(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def figures(trainer: Trainer) -> dict[str, Any]:
    """Return what a run came to, for its `end` line."""
    losses = [loss for loss in trainer.last_losses if math.isfinite(loss)]
    return {
        "step": trainer.step,
        "samples_seen": trainer.plan.samples_seen(trainer.step),
        "train_time_s": trainer.train_time_s - trainer.restored_train_time_s,
        "final_loss": sum(losses) / len(losses) if losses else None,
        "peak_memory_bytes": trainer.peak_memory_bytes(),
    }


def ingest() -> str | None:
    """Bring the database up to the journals in a process of its own; return what went wrong, if anything did.

    The journal is the truth: a database that is away takes the lines in later.
    """
    command = [sys.executable, "-m", "db.ingest"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_without_ranks())
    return None if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def _without_ranks() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("TORCHELASTIC_")}


if __name__ == "__main__":
    sys.exit(main())
