"""Ends this process because of another rank, or because it is asked to stop before its first step."""

import os
import signal
import sys
import time
from dataclasses import dataclass

from elasticqa.distributed.topology import Topology
from elasticqa.elastic.agent_directory import AgentDirectory
from elasticqa.elastic.end_causes import EndCause, record_causes, recorded_causes
from elasticqa.elastic.failure_detector import Detection
from elasticqa.elastic.health_check import HealthCheck
from elasticqa.elastic.stack_dumps import StackDumpFile
from elasticqa.errors import ExitCode, JournalError
from elasticqa.run.attempt import Attempt, write_end

_AGENT_RECORDS_S = 3.0
"""Time to wait for the agent of a dead process to record its signal; if the node is lost, there is no record."""
_FLUSH_S = 10.0


@dataclass
class Shutdown:
    """Ends this process; a field is None until that part of the attempt exists."""

    topology: Topology
    health_check: HealthCheck | None = None
    attempt: Attempt | None = None
    stacks: StackDumpFile | None = None

    def on_peer_loss(self, detection: Detection) -> None:
        """End the process: another rank has failed, or the other ranks count this one as failed."""
        is_failure = detection.cause.is_failure
        try:
            cause = self._record(detection)
            if self._prints_cause(detection):
                sys.stderr.write(f"elasticqa: {cause}; this attempt ends, training resumes from the last checkpoint\n")
                sys.stderr.flush()
        finally:
            # Exit even if recording fails: the other ranks wait for this process.
            os._exit(ExitCode.PEER_LOST if is_failure else ExitCode.STOPPED)

    def _prints_cause(self, detection: Detection) -> bool:
        """Whether this rank prints the cause on its node: local rank 0, and local rank 1 if 0 is the cause."""
        is_next = self.topology.local_rank == 1 and detection.rank == self.topology.rank - 1
        return self.topology.is_node_main or is_next

    def _record(self, detection: Detection) -> EndCause:
        """Record stacks, cause and end of the attempt, and return the cause (as the dead rank's agent recorded it)."""
        cause, attempt = detection.cause, self.attempt
        is_failure = cause.is_failure
        writer = f"rank-{self.topology.rank:05d}"
        is_recorder = self.topology.is_main or detection.rank == 0
        if attempt is None:
            agent = AgentDirectory.from_env()
            if is_recorder and agent is not None:
                agent.keep_startup_failures(writer, [cause])
            return cause
        if self.stacks is not None and is_failure:
            self.stacks.dump(str(cause))
        if cause.kind == "gone" and self.topology.is_main:
            cause = _cause_of_agent(attempt, cause)
        record_causes(attempt.directory, attempt.number, writer, [cause])
        if is_recorder and is_failure:
            self._write_event(attempt, detection.rank, cause)
        self._write_end(attempt, "failed" if is_failure else "preempted", str(cause))
        return cause

    def on_early_stop(self, number: signal.Signals) -> None:
        """End the process because it was asked to stop before its first step: there is nothing to save yet."""
        reason = f"asked to stop by {number.name} before its first step"
        try:
            if self.health_check is not None:
                self.health_check.report_leave(f"was {reason}")
            if self.attempt is not None:
                self._write_end(self.attempt, "preempted", reason)
        finally:
            os._exit(ExitCode.STOPPED)

    def _write_event(self, attempt: Attempt, rank: int, cause: EndCause) -> None:
        if attempt.journal is None:
            return
        data = {"rank": rank, "kind": cause.kind}
        if self.stacks is not None:
            data["stacks"] = self.stacks.name.rpartition("-rank-")[0] + "-rank-*.txt"
        try:
            attempt.journal.write("event", {"name": "peer_lost", "message": str(cause), "data": data})
            attempt.journal.flush(_FLUSH_S)
        except JournalError as error:
            sys.stderr.write(f"elasticqa: {error}\n")

    def _write_end(self, attempt: Attempt, status: str, reason: str) -> None:
        if not self.topology.is_main:
            return
        try:
            write_end(attempt, status, reason)
        except JournalError as error:
            sys.stderr.write(f"elasticqa: {error}\n")


def _cause_of_agent(attempt: Attempt, cause: EndCause) -> EndCause:
    """Return what the agent of a dead process has recorded of it; without a record the given cause."""
    until = time.monotonic() + _AGENT_RECORDS_S
    while time.monotonic() < until:
        found = [item for item in recorded_causes(attempt.directory, attempt.number) if item.who == cause.who]
        if found:
            return found[0]
        time.sleep(0.1)
    return EndCause.now("gone", cause.who, cause.what)
