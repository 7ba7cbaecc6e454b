"""torchrun as a scheduler needs it: asked to stop is not failed, and a lost peer or store is noticed in seconds."""

import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from torch.distributed import DistError
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous.api import RendezvousClosedError, RendezvousError, RendezvousTimeoutError
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from torch.distributed.launcher import api as launcher
from torch.distributed.run import get_args_parser, parse_min_max_nnodes
from torch.distributed.run import main as torchrun

from elasticqa.elastic.agent import NodeAgent
from elasticqa.elastic.exit_codes import is_refusal
from elasticqa.elastic.failure_detector import SILENCE_VARIABLE, silence_s
from elasticqa.elastic.failures import AGENT_DIRECTORY_VARIABLE, attempt_of_workers, end_attempt, known_departures
from elasticqa.elastic.signals import AGENT_PID_VARIABLE
from elasticqa.elastic.stack_dumps import PEER_LOST
from elasticqa.elastic.store_monitor import StoreWatch
from elasticqa.errors import ConfigError, ExitCode
from elasticqa.run.lock import hold


class _Node:
    """This node: the watch over the store that it meets others at, and its agent once torch's launcher has made it."""

    def __init__(self, options: Sequence[str], folder: Path) -> None:
        known = get_args_parser().parse_args(options)
        self._silence_s = silence_s(os.environ.get(SILENCE_VARIABLE))
        self._folder = folder
        self._agent: NodeAgent | None = None
        self._watch: StoreWatch | None = None
        if parse_min_max_nnodes(known.nnodes)[1] > 1:
            host, port = parse_rendezvous_endpoint(known.rdzv_endpoint, default_port=-1)
            self._watch = StoreWatch(host, port, self._silence_s, self._lose_store)

    def agent(self, *arguments: object, **options: object) -> NodeAgent:
        """Return what torch's launcher takes for its own agent."""
        has_peers = self._watch is not None
        self._agent = NodeAgent(
            *arguments, folder=self._folder, has_peers=has_peers, silence_s=self._silence_s, **options
        )
        return self._agent

    def start(self) -> None:
        """Look after the store, if others are met at it."""
        if self._watch is not None:
            self._watch.start()

    def _lose_store(self, what: str) -> None:
        """End this process in seconds: without the store nothing can be started again."""
        status = store_lost(what)
        try:
            if self._agent is not None:
                self._agent.note("gone", f"ended: {what}")
                self._agent.end_workers()
            self.end_attempt()
        finally:
            os._exit(status)

    def close(self) -> None:
        """Look after nothing any more, and leave the attempt with its end."""
        if self._watch is not None:
            self._watch.stop()
        self.end_attempt()

    def end_attempt(self) -> None:
        """Write the end of an attempt whose workers could not, if no other attempt or node has the run."""
        attempt = attempt_of_workers(self._folder)
        if attempt is None or all(item.kind == "changed" for item in known_departures(*attempt)):
            return
        # On a file system that is full or away the end is written by the next attempt.
        with suppress(OSError), hold(attempt[0]) as is_free:
            if is_free:
                end_attempt(*attempt)


def store_lost(what: str) -> int:
    """Say how to go on, and return the exit status: under Slurm that of a job which is to be queued again."""
    sys.stderr.write(
        f"elasticqa: {what}: the node that hosts it is gone, or its port is taken; start the same command again on "
        "every node, and the run goes on from its last checkpoint\n"
    )
    sys.stderr.flush()
    return ExitCode.STOPPED if "SLURM_JOB_ID" in os.environ else ExitCode.STORE_LOST


def _what(error: Exception) -> str:
    if isinstance(error, RendezvousTimeoutError):
        return "too few nodes came to the rendezvous in time"
    if isinstance(error, RendezvousClosedError):
        return "the rendezvous of this job is over"
    return f"the rendezvous store is lost ({type(error).__name__})"


def main(argv: Sequence[str]) -> int:
    """Run torchrun with its options; its workers have been stopped, and have saved, when this returns.

    Raises:
        ChildFailedError: the workers failed, and so did their restarts; where they refused the request, they have said
            why, and that is all.
    """
    # Survives the signal, while its workers die of it: a handler, other than to ignore it, is not passed on to them.
    signal.signal(PEER_LOST, lambda *_: None)
    with tempfile.TemporaryDirectory(prefix="elasticqa-agent-") as name:
        try:
            node = _Node(argv, Path(name))
        except ConfigError as error:
            sys.stderr.write(f"elasticqa: {error}\n")
            return ExitCode.BAD_REQUEST
        os.environ[AGENT_DIRECTORY_VARIABLE] = name
        os.environ[AGENT_PID_VARIABLE] = str(os.getpid())
        # torch's launcher has no other place for an agent of one's own.
        launcher.LocalElasticAgent = node.agent  # type: ignore[assignment, attr-defined]
        node.start()
        try:
            torchrun(list(argv))
        except SignalException as end:
            sys.stderr.write(f"elasticqa: stopped by {end.sigval.name}\n")
            return ExitCode.STOPPED
        except ChildFailedError as error:
            if not is_refusal([failure.exitcode for failure in error.failures.values()]):
                raise
            return ExitCode.BAD_REQUEST
        except (RendezvousError, DistError) as error:
            return store_lost(_what(error))
        finally:
            node.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
