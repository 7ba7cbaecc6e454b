"""What a rank does when its attempt ends by no fault of its own: stacks and record kept, then the process ends."""

import os
import signal
import sys
import time
from dataclasses import dataclass

from elasticqa.distributed.topology import Topology
from elasticqa.elastic.failure_detector import Verdict
from elasticqa.elastic.failures import Departure, agent_folder, departure, keep_news, known_departures, note
from elasticqa.elastic.health_check import Watch
from elasticqa.elastic.stack_dumps import StackFile
from elasticqa.errors import ExitCode, JournalError
from elasticqa.run.attempt import Attempt, write_end

_AGENT_KNOWS_S = 3.0
"""For the agent of a process that died to note of which signal; where the whole node is gone nobody does."""
_FLUSH_S = 10.0


@dataclass
class Aftermath:
    """Ends this process; what is not known yet of the attempt is None."""

    topology: Topology
    watch: Watch | None = None
    attempt: Attempt | None = None
    stacks: StackFile | None = None

    def on_loss(self, verdict: Verdict) -> None:
        """End the process because of another rank, or because this one was given up by the others."""
        is_change = verdict.departure.kind == "changed"
        try:
            cause = self._keep(verdict)
            if self._is_speaker(verdict):
                sys.stderr.write(f"elasticqa: {cause}; this attempt ends, what was saved is gone on from\n")
                sys.stderr.flush()
        finally:
            # Whatever could not be kept: who waits for this process waits for ever.
            os._exit(ExitCode.STOPPED if is_change else ExitCode.PEER_LOST)

    def _is_speaker(self, verdict: Verdict) -> bool:
        """Whether this rank is the one of its node that says why, or is next to it, which may say nothing any more."""
        is_next = self.topology.local_rank == 1 and verdict.rank == self.topology.rank - 1
        return self.topology.is_node_main or is_next

    def _keep(self, verdict: Verdict) -> Departure:
        """Keep stacks and record, and return the cause as it is known."""
        cause, attempt = verdict.departure, self.attempt
        is_change = cause.kind == "changed"
        writer = f"rank-{self.topology.rank:05d}"
        tells = self.topology.is_main or verdict.rank == 0
        if attempt is None:
            folder = agent_folder()
            if tells and folder is not None:
                keep_news(folder, writer, [cause])
            return cause
        if self.stacks is not None and not is_change:
            self.stacks.dump(str(cause))
        if cause.kind == "gone" and self.topology.is_main:
            cause = _of_agent(attempt, cause)
        note(attempt.directory, attempt.number, writer, [cause])
        if tells and not is_change:
            self._write_event(attempt, verdict, cause)
        self._write_end("preempted" if is_change else "failed", str(cause))
        return cause

    def on_early_stop(self, number: signal.Signals) -> None:
        """End the process, which has nothing to save yet, because it was asked to stop."""
        what = f"was asked to stop by {number.name} before its first step"
        try:
            if self.watch is not None:
                self.watch.leaves(what)
            if self.attempt is not None:
                self._write_end("preempted", f"asked to stop by {number.name} before its first step")
        finally:
            os._exit(ExitCode.STOPPED)

    def _write_event(self, attempt: Attempt, verdict: Verdict, cause: Departure) -> None:
        if attempt.journal is None:
            return
        data = {"rank": verdict.rank, "kind": cause.kind}
        if self.stacks is not None:
            data["stacks"] = self.stacks.name.rpartition("-rank-")[0] + "-rank-*.txt"
        try:
            attempt.journal.write("event", {"name": "peer_lost", "message": str(cause), "data": data})
            attempt.journal.flush(_FLUSH_S)
        except JournalError as error:
            sys.stderr.write(f"elasticqa: {error}\n")

    def _write_end(self, status: str, reason: str) -> None:
        assert self.attempt is not None
        if not self.topology.is_main:
            return
        try:
            write_end(self.attempt, status, reason)
        except JournalError as error:
            sys.stderr.write(f"elasticqa: {error}\n")


def _of_agent(attempt: Attempt, cause: Departure) -> Departure:
    """Return what the agent of a lost process says of it, or what is known already."""
    until = time.monotonic() + _AGENT_KNOWS_S
    while time.monotonic() < until:
        told = [item for item in known_departures(attempt.directory, attempt.number) if item.who == cause.who]
        if told:
            return told[0]
        time.sleep(0.1)
    return departure("gone", cause.who, cause.what)
