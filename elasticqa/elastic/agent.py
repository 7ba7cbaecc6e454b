"""The elastic agent of a node: torch's agent, which also records why workers end and detects failures in seconds."""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerState
from torch.distributed.elastic.rendezvous.api import RendezvousClosedError
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

from elasticqa.distributed.torch_internals import TorchAgent
from elasticqa.elastic.agent_directory import AgentDirectory
from elasticqa.elastic.end_causes import LEAVES, EndCause, cause_of_exit, is_refusal, record_causes
from elasticqa.elastic.stack_dumps import STACK_DUMP_SIGNAL
from elasticqa.elastic.stopped_workers import StoppedWorkerDetector
from elasticqa.errors import ExitCode

SHUTDOWN_TIMEOUT_S = 60
"""Time from SIGTERM to SIGKILL of a worker; longer than a checkpoint takes."""
EXIT_BARRIER_TIMEOUT_S = 120
"""Timeout of torch's exit barrier, at which agents whose workers have finished wait for rank 0's database update."""
_LAST_SECONDS_S = 10.0
_AFTER_HEALTH_CHECK_S = 5.0
"""The agent ends a stopped worker this much later than the ranks' health check, which records more."""
_OTHER_NODES_CLOSED_S = 15.0
"""Time for this node's workers to refuse the request themselves after another node closed the rendezvous."""
_SLOW_RENDEZVOUS_S = 45.0


class ElasticAgent(TorchAgent):
    """Starts, monitors and stops the workers of this node."""

    def __init__(
        self, *arguments: Any, directory: AgentDirectory, has_peers: bool, peer_timeout_s: float, **options: Any
    ) -> None:
        """Prepare.

        Args:
            arguments: of torch's agent.
            directory: where the workers announce their attempt.
            has_peers: the job may have other nodes.
            peer_timeout_s: of the ranks' health check.
            options: of torch's agent.
        """
        super().__init__(*arguments, **{**options, "exit_barrier_timeout": EXIT_BARRIER_TIMEOUT_S})
        self._directory = directory
        self._has_peers = has_peers
        self._stopped_workers = StoppedWorkerDetector(peer_timeout_s + _AFTER_HEALTH_CHECK_S)
        self._open_at = 0.0

    def record(self, kind: str, what: str) -> None:
        """Record what happens to this node."""
        who = f"node {self.get_worker_group().group_rank} on {socket.gethostname()}"
        self._record([EndCause.now(kind, who, what)])

    def _record(self, causes: list[EndCause]) -> None:
        attempt, writer = self._directory.announced_attempt(), f"node-{self.get_worker_group().group_rank or 0:05d}"
        if attempt is None:
            self._directory.keep_startup_failures(writer, causes)
        elif causes:
            record_causes(*attempt, writer, causes)

    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        if not self._has_peers:
            super()._rendezvous(worker_group)
            return
        handler = worker_group.spec.rdzv_handler
        assert isinstance(handler, DynamicRendezvousHandler)
        wanted = handler.settings
        line = f"{wanted.min_nodes} to {wanted.max_nodes} nodes, and gives up after {wanted.timeout.join.seconds} s"
        with print_after(_SLOW_RENDEZVOUS_S, f"elasticqa: {socket.gethostname()} waits for {line}"):
            super()._rendezvous(worker_group)

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        self._directory.forget_attempt()
        self._open_at = time.monotonic()
        workers: dict[int, Any] = super()._start_workers(worker_group)
        # Record the exit codes before torch stops the other workers, whose exit codes do not show the cause.
        self.call_before_closing(lambda: self._record_ends(worker_group))
        return workers

    def _record_ends(self, worker_group: WorkerGroup) -> None:
        """Record how workers ended, if any failed, and continue those that are stopped, so that they can end too."""
        failed = {
            worker_group.workers[local_rank].global_rank: code
            for local_rank, code in self.worker_exit_codes().items()
            if code
        }
        if failed:
            causes = [cause_of_exit(rank, socket.gethostname(), code) for rank, code in failed.items()]
            self._record([cause for cause in causes if cause is not None])
            self._continue_stopped()

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        if worker_group.workers[0].world_size > 1:  # with one rank, no other rank waits for a stopped worker
            self._end_stopped(worker_group)
        if self._has_peers and self._directory.announced_attempt() is None:
            self._check_open(worker_group, time.monotonic())
        result: RunResult = super()._monitor_workers(worker_group)
        codes = {failure.exitcode for failure in result.failures.values()}
        if is_refusal(codes):
            # Do not restart: the workers would refuse the same request again.
            self.forbid_restarts()
        if self._has_peers and codes == {ExitCode.STOPPED}:
            # A node joins or leaves: do not count this restart as a failure.
            self.allow_one_more_restart()
        return result

    def _end_stopped(self, worker_group: WorkerGroup) -> None:
        """End workers stopped by SIGSTOP for too long; until the health check starts, no other rank detects them."""
        ranks = {pid: worker_group.workers[local].global_rank for local, pid in self.worker_pids().items()}
        for pid, seconds in self._stopped_workers.find(ranks, time.monotonic()).items():
            who = f"rank {ranks[pid]} on {socket.gethostname()}"
            cause = EndCause.now("silent", who, f"was stopped for {seconds:.0f} s")
            self._record([cause])
            _print(f"elasticqa: {cause}; its worker group ends, training resumes from the last checkpoint")
            # Send the dump signal first: it stays pending until SIGCONT, so the dump shows where the worker was
            # stopped.
            for number in (STACK_DUMP_SIGNAL, signal.SIGCONT):
                _send(pid, number)

    def _check_open(self, worker_group: WorkerGroup, now: float) -> None:
        """Raise if another node has ended the job before an attempt began: workers here would wait for that node."""
        if not worker_group.spec.rdzv_handler.is_closed():
            self._open_at = now
        elif now - self._open_at > _OTHER_NODES_CLOSED_S:
            raise RendezvousClosedError("another node has ended the job")

    def _stop_workers(self, worker_group: WorkerGroup) -> None:
        if worker_group.state == WorkerState.HEALTHY:
            self.record("changed", "finds a node that waits to join")
        self._close(SHUTDOWN_TIMEOUT_S)

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = SHUTDOWN_TIMEOUT_S) -> None:
        is_leaving = bool(self.living_workers())
        if is_leaving:
            self.record("changed", LEAVES)
        del death_sig  # workers are always asked to stop by SIGTERM
        self._close(max(timeout, SHUTDOWN_TIMEOUT_S))
        if is_leaving:
            self.leave_rendezvous(_LAST_SECONDS_S)

    def _close(self, timeout_s: int) -> None:
        self._continue_stopped()
        self.close_workers(signal.SIGTERM, timeout_s)

    def _continue_stopped(self) -> None:
        """Send SIGCONT to all workers: a stopped one would neither dump its stacks nor end before SIGKILL."""
        for process in self.living_workers():
            _send(process.pid, signal.SIGCONT)

    def living_workers(self) -> list[psutil.Process]:
        """Return the processes of the workers that have not ended."""
        found = []
        for pid in self.worker_pids().values():
            try:
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.NoSuchProcess:
                continue
        return found

    def end_workers(self) -> None:
        """End the workers within seconds, from any thread."""
        processes = self.living_workers()
        for number in (signal.SIGCONT, signal.SIGTERM):
            for process in processes:
                _send(process.pid, number)
        until = time.monotonic() + _LAST_SECONDS_S
        while self.living_workers() and time.monotonic() < until:
            time.sleep(0.1)
        for process in self.living_workers():
            _send(process.pid, signal.SIGKILL)


@contextmanager
def print_after(seconds: float, line: str) -> Iterator[None]:
    """Print the line to standard error if the block takes longer than ``seconds``."""
    timer = threading.Timer(seconds, _print, [line])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _print(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
