"""The agent of a node: what it adds to torch's, so that a loss is short and the record says who left and why."""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing.api import SubprocessContext
from torch.distributed.elastic.rendezvous.api import RendezvousClosedError, RendezvousError
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler, _RendezvousExitOp

from elasticqa.elastic.exit_codes import departure_of, is_refusal
from elasticqa.elastic.failures import LEAVES, Departure, attempt_of_workers, departure, forget_attempt, keep_news, note
from elasticqa.elastic.stack_dumps import PEER_LOST
from elasticqa.elastic.stopped_workers import Standstill
from elasticqa.errors import ExitCode

SHUTDOWN_TIMEOUT_S = 60
"""Between SIGTERM and SIGKILL for a worker: longer than a checkpoint takes."""
EXIT_BARRIER_TIMEOUT_S = 120
"""For agents whose workers are done, until those of rank 0 are, which bring the database up to date."""
_LAST_SECONDS_S = 10.0
_WATCH_FIRST_S = 5.0
"""For the ranks' own watch, which keeps more of a worker that stops once it has begun."""
_ALIKE_S = 15.0
"""For workers of this node that refuse the request as those of another did, and so end the job with another status."""
_LONG_WAIT_S = 45.0
"""For other nodes, after which somebody who looks wants to know."""


class NodeAgent(LocalElasticAgent):
    """Starts, watches and stops the workers of this node."""

    def __init__(self, *arguments: Any, folder: Path, has_peers: bool, silence_s: float, **options: Any) -> None:
        """Take what torch's launcher gives.

        Args:
            arguments: of torch's agent.
            folder: where the workers tell which attempt they are.
            has_peers: there may be other nodes.
            silence_s: after so long without a beat a rank counts as stopped.
            options: of torch's agent.
        """
        super().__init__(*arguments, **{**options, "exit_barrier_timeout": EXIT_BARRIER_TIMEOUT_S})
        self._folder = folder
        self._has_peers = has_peers
        self._standstill = Standstill(silence_s + _WATCH_FIRST_S)
        self._open_at = 0.0

    @property
    def name(self) -> str:
        """Of this node, as the record has it."""
        return f"node {self._worker_group.group_rank} on {socket.gethostname()}"

    def note(self, kind: str, what: str) -> None:
        """Note what happens to this node."""
        self._note([departure(kind, self.name, what)])

    def _note(self, departures: list[Departure]) -> None:
        attempt, writer = attempt_of_workers(self._folder), f"node-{self._worker_group.group_rank or 0:05d}"
        if attempt is None:
            keep_news(self._folder, writer, departures)
        elif departures:
            note(*attempt, writer, departures)

    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        if not self._has_peers:
            super()._rendezvous(worker_group)
            return
        handler = worker_group.spec.rdzv_handler
        assert isinstance(handler, DynamicRendezvousHandler)
        asked = handler.settings
        line = f"{asked.min_nodes} to {asked.max_nodes} nodes, and gives up after {asked.timeout.join.seconds} s"
        with said_after(_LONG_WAIT_S, f"elasticqa: {socket.gethostname()} waits for {line}"):
            super()._rendezvous(worker_group)

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        forget_attempt(self._folder)
        self._open_at = time.monotonic()
        workers: dict[int, Any] = super()._start_workers(worker_group)
        assert isinstance(self._pcontext, SubprocessContext)
        self._note_before_closing(self._pcontext, worker_group)
        return workers

    def _note_before_closing(self, context: SubprocessContext, worker_group: WorkerGroup) -> None:
        """Note how workers ended, once, before the others are asked to: those wait for what is known of it.

        Torch closes all of them in the look that finds one dead; how those end says nothing.
        """
        close = context.close

        def note_and_close(*arguments: Any, **options: Any) -> None:
            context.close = close  # type: ignore[method-assign]
            self._note_ends(context, worker_group)
            close(*arguments, **options)

        context.close = note_and_close  # type: ignore[method-assign]

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        if worker_group.workers[0].world_size > 1:  # one that trains alone keeps nobody waiting
            self._end_stopped(worker_group)
        if self._has_peers and attempt_of_workers(self._folder) is None:
            self._check_open(worker_group, time.monotonic())
        result: RunResult = super()._monitor_workers(worker_group)
        codes = {failure.exitcode for failure in result.failures.values()}
        if is_refusal(codes):
            # Refused once, refused every time.
            self._remaining_restarts = 0
        if self._has_peers and codes == {ExitCode.STOPPED}:
            # Another node was the first to ask: the membership changes, which is no failure.
            self._remaining_restarts += 1
        return result

    def _end_stopped(self, worker_group: WorkerGroup) -> None:
        """End workers that have long stood stopped: until all ranks have met, nobody else would notice it."""
        assert self._pcontext is not None
        ranks = {pid: worker_group.workers[local].global_rank for local, pid in self._pcontext.pids().items()}
        for pid, seconds in self._standstill.over(ranks, time.monotonic()).items():
            who = f"rank {ranks[pid]} on {socket.gethostname()}"
            lost = departure("silent", who, f"was stopped for {seconds:.0f} s")
            self._note([lost])
            _say(f"elasticqa: {lost}; its group ends, what was saved is gone on from")
            # In this order it runs no further than to where it keeps its stacks.
            for number in (PEER_LOST, signal.SIGCONT):
                _send(pid, number)

    def _check_open(self, worker_group: WorkerGroup, now: float) -> None:
        """Raise where another node has failed for good: until all ranks have met, those of this one would wait."""
        if not worker_group.spec.rdzv_handler.is_closed():
            self._open_at = now
        elif now - self._open_at > _ALIKE_S:
            raise RendezvousClosedError("a node has failed for good")

    def _note_ends(self, context: SubprocessContext, worker_group: WorkerGroup) -> None:
        """Note how workers ended that have, if any failed, and let those that are stopped end too."""
        found = []
        for local_rank, handler in context.subprocess_handlers.items():
            code = handler.proc.poll()
            if code:
                rank = worker_group.workers[local_rank].global_rank
                found.append(departure_of(rank, socket.gethostname(), code))
        if found:
            self._note([item for item in found if item is not None])
            self._resume_stopped()

    def _stop_workers(self, worker_group: WorkerGroup) -> None:
        if worker_group.state == WorkerState.HEALTHY:
            self.note("changed", "finds a node that waits to join")
        self._close(signal.SIGTERM, SHUTDOWN_TIMEOUT_S)

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = SHUTDOWN_TIMEOUT_S) -> None:
        is_leaving = bool(self.living_workers())
        if is_leaving:
            self.note("changed", LEAVES)
        # Whatever this process was sent: workers are asked to stop in one way.
        del death_sig
        self._close(signal.SIGTERM, max(timeout, SHUTDOWN_TIMEOUT_S))
        if is_leaving:
            self._leave_rendezvous()

    def _leave_rendezvous(self) -> None:
        """Tell the other nodes that this one is gone: they would wait for its missing signs of life."""
        handler = self._worker_group.spec.rdzv_handler
        assert isinstance(handler, DynamicRendezvousHandler)
        handler._stop_heartbeats()
        try:
            handler._op_executor.run(_RendezvousExitOp(), time.monotonic() + _LAST_SECONDS_S)
        except RendezvousError:
            return  # the store is gone, and with it whoever would wait

    def _close(self, death_sig: signal.Signals, timeout_s: int) -> None:
        if self._pcontext is not None:
            self._resume_stopped()
            self._pcontext.close(death_sig, timeout_s)

    def _resume_stopped(self) -> None:
        """Let workers run that are stopped: they would not end before SIGKILL, and never say where they stood."""
        for process in self.living_workers():
            _send(process.pid, signal.SIGCONT)

    def living_workers(self) -> list[psutil.Process]:
        """Return the processes of the workers that have not ended."""
        pids = self._pcontext.pids().values() if self._pcontext is not None else []
        found = []
        for pid in pids:
            try:
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.NoSuchProcess:
                continue
        return found

    def end_workers(self) -> None:
        """Have the workers end in seconds; whatever the main thread of the agent waits for."""
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
def said_after(seconds: float, line: str) -> Iterator[None]:
    """Print the line to standard error if the block is still under way after so many seconds."""
    timer = threading.Timer(seconds, _say, [line])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
