"""The process of one rank: signals, process group, health check, and exit codes of errors."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta

import psutil

from elasticqa.config.command_line import parse_config
from elasticqa.config.environment import agent_pid, peer_timeout_s
from elasticqa.config.train_config import TrainConfig
from elasticqa.distributed.topology import Topology
from elasticqa.elastic.health_check import HealthCheck
from elasticqa.elastic.shutdown import Shutdown
from elasticqa.elastic.signals import EarlyExit, StopRequest, stop_with_parent
from elasticqa.elastic.stack_dumps import StackDumpFile, dump_stacks_on_signal
from elasticqa.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    ExitCode,
    JournalError,
    LocalOutOfMemoryError,
    MicroBatchTooLargeError,
    RunRemovedError,
    one_line,
)
from elasticqa.run.attempt import Attempt, write_end
from elasticqa.run.oom_records import OutOfMemoryRecord, write_oom_record
from elasticqa.training.startup_timer import StartupTimer
from elasticqa.training.step_metrics import NonFiniteLossError

PROCESS_GROUP_TIMEOUT = timedelta(minutes=5)
"""Longer than the slowest collective of healthy ranks takes; the health check detects lost ranks much earlier."""

_AGREED = (ConfigError, DataError, MicroBatchTooLargeError, NonFiniteLossError, CheckpointError)
"""Errors that every rank raises at the same step."""
_REFUSALS = (ConfigError, DataError, MicroBatchTooLargeError, RunRemovedError)
_FAILURES = (NonFiniteLossError, CheckpointError, JournalError)
_FATAL = (NonFiniteLossError, MicroBatchTooLargeError)
"""Errors that a restart would raise again."""


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A rank that has joined its process group and the health check."""

    config: TrainConfig
    topology: Topology
    stop: StopRequest
    early_exit: EarlyExit
    health_check: HealthCheck
    shutdown: Shutdown
    timer: StartupTimer

    @contextmanager
    def attempt(self, attempt: Attempt) -> Iterator[None]:
        """If the block fails, record the error in the run directory and report it to the other ranks."""
        stacks = StackDumpFile(attempt.directory, attempt.number, self.topology.rank)
        self.shutdown.attempt, self.shutdown.stacks = attempt, stacks
        try:
            yield
        except BaseException as error:
            rank = self.health_check.name
            if isinstance(error, LocalOutOfMemoryError):
                record = OutOfMemoryRecord(attempt.number, self.topology.world_size, error.micro_batch_size, error.what)
                write_oom_record(attempt.directory, self.topology.rank, record)
            # Write the stacks before the report: if another rank's error is the cause, `report_error` ends this
            # process.
            stacks.add_error(f"{rank} failed", error)
            is_agreed = isinstance(error, _AGREED)
            self.health_check.report_error(error, is_agreed=is_agreed)
            is_own = self.topology.world_size > 1 and not is_agreed
            reason = f"{rank} failed: {one_line(error)}" if is_own else one_line(error)
            # If the `end` line cannot be written (full disk), still raise the original error.
            with suppress(JournalError):
                write_end(attempt, "failed", reason, is_fatal=isinstance(error, _FATAL))
            raise
        finally:
            stacks.close()


def run_worker(argv: Sequence[str], train: Callable[[Worker], int]) -> int:
    """Join the process group, train, and return the exit code; an error is one line per node."""
    stop = StopRequest()
    stop.install()
    dump_stacks_on_signal()
    timer = StartupTimer(psutil.Process().create_time())
    timer.end("import")
    early_exit: EarlyExit | None = None
    try:
        with _reported():
            config = parse_config(argv)
            topology = Topology.from_env()
        with _reported(topology):
            timeout_s = peer_timeout_s()
        parent = agent_pid()
        if parent is not None:
            stop_with_parent(parent)
        shutdown = Shutdown(topology)
        early_exit = EarlyExit(shutdown.on_early_stop)
        early_exit.start(stop)
        with (
            topology.process_group(PROCESS_GROUP_TIMEOUT),
            HealthCheck(topology, timeout_s, shutdown.on_peer_loss) as health_check,
        ):
            shutdown.health_check = health_check
            # Report errors before the process group is destroyed: the agent kills the other ranks as soon as one exits.
            with health_check.reports_errors(_AGREED), _reported(topology):
                timer.end("connect")
                worker = Worker(
                    config=config,
                    topology=topology,
                    stop=stop,
                    early_exit=early_exit,
                    health_check=health_check,
                    shutdown=shutdown,
                    timer=timer,
                )
                return train(worker)
    except _REFUSALS:
        return ExitCode.BAD_REQUEST
    except _FAILURES:
        return ExitCode.FAILED
    finally:
        if early_exit is not None:
            early_exit.cancel()


@contextmanager
def _reported(topology: Topology | None = None) -> Iterator[None]:
    """Print the error of the block, one line per node: its ranks raise the same."""
    try:
        yield
    except (*_REFUSALS, *_FAILURES) as error:
        if topology is None or topology.is_node_main:
            sys.stderr.write(f"elasticqa: {error}\n")
            sys.stderr.flush()
        raise
