"""One rank of a training run: main() checks the request, runs it and says how it ended."""

import math
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from typing import Any

import psutil
from torch.distributed.elastic.multiprocessing.errors import record
from transformers import PreTrainedModel

from db.storage.home import is_database_own, is_home_shared
from elasticqa.checkpoint.export import save_pretrained
from elasticqa.config.batch_plan import batch_plan
from elasticqa.config.command_line import parse_config
from elasticqa.config.train_config import TrainConfig
from elasticqa.data.hub import model_digest, resolve_model
from elasticqa.data.task import Task, load_task
from elasticqa.distributed.topology import Topology, check_parallel, resolve_precision
from elasticqa.elastic.failure_detector import SILENCE_VARIABLE, silence_s
from elasticqa.elastic.failures import changes
from elasticqa.elastic.health_check import Watch
from elasticqa.elastic.shutdown import Aftermath
from elasticqa.elastic.signals import AGENT_PID_VARIABLE, EarlyEnd, StopRequest, stop_with_parent
from elasticqa.elastic.stack_dumps import StackFile, print_stacks_when_asked
from elasticqa.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    DoesNotFitError,
    ExitCode,
    JournalError,
    NoMemoryHereError,
    RunGoneError,
    one_line,
)
from elasticqa.models.question_answering import QuestionAnswerer, load_model
from elasticqa.run.attempt import Attempt, write_end
from elasticqa.run.home import HomeError, home
from elasticqa.run.oom_records import Shortage, keep
from elasticqa.training.builder import build_trainer, plan_profile, restore, setup_facts
from elasticqa.training.claim import begin
from elasticqa.training.console import closing, opening
from elasticqa.training.startup_timer import Phases
from elasticqa.training.step_metrics import NonFiniteLossError, memory_peaks
from elasticqa.training.trainer import Trainer

PROCESS_GROUP_TIMEOUT = timedelta(minutes=5)
"""For the slowest phase of a living rank; that all live is watched elsewhere."""
_INGEST_S = 60.0
"""For the database: the agents of other nodes wait for twice as long."""
_LAST_INGEST_S = 10.0
"""The same after a request to stop, of which SIGKILL follows."""
_AGREED = (ConfigError, DataError, DoesNotFitError, HomeError, NonFiniteLossError, CheckpointError)
"""Errors that every rank raises at the same place."""

_REFUSALS = (ConfigError, DataError, DoesNotFitError, HomeError, RunGoneError)
_FAILURES = (NonFiniteLossError, CheckpointError, JournalError)

_FATAL = (NonFiniteLossError, DoesNotFitError)
"""Errors that the same start would raise again."""


@record
def main(argv: Sequence[str] | None = None) -> int:
    """Train one run, or go on with it; returns the exit status of this rank."""
    stop = StopRequest()
    stop.install()
    print_stacks_when_asked()
    phases = Phases(psutil.Process().create_time())
    phases.end("import")
    early: EarlyEnd | None = None
    try:
        with _complaining():
            config = parse_config(sys.argv[1:] if argv is None else argv)
            topology = Topology.from_env()
        with _complaining(topology):
            limit_s = silence_s(os.environ.get(SILENCE_VARIABLE))
        if AGENT_PID_VARIABLE in os.environ:
            stop_with_parent(int(os.environ[AGENT_PID_VARIABLE]))
        aftermath = Aftermath(topology)
        early = EarlyEnd(aftermath.on_early_stop)
        early.start(stop)
        with topology.process_group(PROCESS_GROUP_TIMEOUT), Watch(topology, limit_s, aftermath.on_loss) as watch:
            aftermath.watch = watch
            # Before this rank leaves the others: the first to end has the agent end the rest.
            with watch.tells(_AGREED), _complaining(topology):
                phases.end("connect")
                return run(config, topology, stop, early, aftermath, phases)
    except _REFUSALS:
        return ExitCode.BAD_REQUEST
    except _FAILURES:
        return ExitCode.FAILED
    finally:
        if early is not None:
            early.cancel()


@contextmanager
def _complaining(topology: Topology | None = None) -> Iterator[None]:
    """Print one line a node where the block refuses or fails: its ranks do so alike."""
    try:
        yield
    except (*_REFUSALS, *_FAILURES) as error:
        if topology is None or topology.is_node_main:
            sys.stderr.write(f"elasticqa: {error}\n")
            sys.stderr.flush()
        raise


def run(
    config: TrainConfig,
    topology: Topology,
    stop: StopRequest,
    early: EarlyEnd,
    aftermath: Aftermath,
    phases: Phases,
) -> int:
    """Build the parts, train, and record how it ended; every rank must call this.

    Nothing is written before data and model are known to be good.
    """
    task, bare, answerer, digests = _load(config, topology, phases)
    with ExitStack() as stack:
        attempt = begin(config, topology, stack, digests)
        stacks = StackFile(attempt.directory, attempt.number, topology.rank)
        stack.callback(stacks.close)
        aftermath.attempt, aftermath.stacks = attempt, stacks
        watch = aftermath.watch
        assert watch is not None
        phases.end("claim")
        try:
            trainer = build_trainer(topology, task=task, answerer=answerer, attempt=attempt, stop=stop, stack=stack)
            resumed_from = restore(trainer, attempt)
            setup = setup_facts(trainer, task, answerer, attempt, resumed_from, digests.get("model"))
            plan_profile(trainer, attempt)
            phases.end("build")
            trainer.recorder.write("setup", setup | {"phases": phases.take()})
            trainer.recorder.say(opening(attempt.config, topology, setup, attempt))
            early.cancel()
            with watch.loop():
                trainer.train()
                phases.skip()
                if trainer.stopped_by is None:
                    save_pretrained(trainer.engine.model, bare, task.tokenizer, attempt.directory / "model", topology)
                    phases.end("export")
        except BaseException as error:
            if isinstance(error, NoMemoryHereError):
                shortage = Shortage(attempt.number, topology.world_size, error.num_features, error.what)
                keep(attempt.directory, topology.rank, shortage)
            # Before the others are told: another cause, which this error only follows from, ends the process there.
            stacks.add_error(f"{watch.name} failed", error)
            watch.failed(error, is_agreed=isinstance(error, _AGREED))
            _end_failed(attempt, error, _reason(error, topology, watch))
            raise
        watch.close()
        after = {"first_pass": trainer.first_pass_time_s, **phases.take()}
        end = write_end(attempt, *_status(trainer, attempt), **figures(trainer), phases=after)
        trainer.recorder.totals(end)
    if topology.is_main:
        ingested = ingest(_INGEST_S if trainer.stopped_by is None else _LAST_INGEST_S)
        trainer.recorder.say(closing(attempt, end, trainer.recorder.evaluations, ingested))
    return 0 if trainer.stopped_by is None else ExitCode.STOPPED


def _load(
    config: TrainConfig, topology: Topology, phases: Phases
) -> tuple[Task, PreTrainedModel, QuestionAnswerer, dict[str, str]]:
    """Return data and model, the model also as transformers gave it, and the digests of both on rank 0.

    The config has been found to fit both.
    """
    check_parallel(config.parallel, topology.world_size, is_distributed=topology.is_distributed)
    resolve_precision(config.precision, topology.device)
    with ThreadPoolExecutor(1, "digest") as beside:
        of_model = beside.submit(model_digest, config.model) if topology.is_main else None
        task = load_task(config, home())
        batch_plan(config, len(task.train), topology.world_size)
        phases.end("features")
        bare, spec = load_model(resolve_model(config.model), config)
        answerer = QuestionAnswerer(bare, spec)
    digests = {"dataset": task.facts["digest"]}
    # A model that has just come from the hub is on this machine now.
    if of_model is not None and (digest := of_model.result() or model_digest(config.model)):
        digests["model"] = digest
    phases.end("model")
    return task, bare, answerer, digests


def _end_failed(attempt: Attempt, error: BaseException, reason: str) -> None:
    # On a full disk this may fail as well: the error itself is the one to be told.
    with suppress(JournalError):
        write_end(attempt, "failed", reason, is_fatal=isinstance(error, _FATAL))


def _reason(error: BaseException, topology: Topology, watch: Watch) -> str:
    """Return why the attempt failed; with the rank where only one can have raised the error."""
    is_own = topology.world_size > 1 and not isinstance(error, _AGREED)
    return f"{watch.name} failed: {one_line(error)}" if is_own else one_line(error)


def _status(trainer: Trainer, attempt: Attempt) -> tuple[str, str]:
    """Return how an attempt without an error ended, and why."""
    if trainer.stopped_by is None:
        return "finished", "trained to the last step"
    changed = changes(attempt.directory, attempt.number, trainer.topology.num_nodes)
    return "preempted", f"asked to stop by {trainer.stopped_by.name}{changed}"


def figures(trainer: Trainer) -> dict[str, Any]:
    """Return what a run came to, for its `end` line."""
    losses = [loss for loss in trainer.figures.last_losses if math.isfinite(loss)]
    return {
        "step": trainer.step,
        "samples_seen": trainer.plan.samples_seen(trainer.step),
        "train_time_s": trainer.figures.train_time_s - trainer.restored_train_time_s,
        "final_loss": sum(losses) / len(losses) if losses else None,
        **memory_peaks(trainer.topology.device),
    }


def ingest(limit_s: float) -> str | None:
    """Bring the database up to the journals in a process of its own; return what went wrong, if anything did.

    The journal is the truth: a database that is away takes the lines in later. On a compute node whose home is shared
    nothing is done: nobody would ever look at the database of that machine.
    """
    if is_database_own(os.environ) and is_home_shared(os.environ):
        return None
    command = [sys.executable, "-m", "db.ingest"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=_without_ranks(), timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        return f"db.ingest.update was stopped after {limit_s:g} s"
    if done.returncode == 0:
        return None
    return (done.stderr.strip() or f"db.ingest.update ended with status {done.returncode}").splitlines()[-1]


def _without_ranks() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("TORCHELASTIC_")}


if __name__ == "__main__":
    sys.exit(main())
