"""torchrun with our elastic agent: a job that is asked to stop exits with 143, and lost peers are detected in seconds.

``main`` runs torchrun with our `ElasticAgent` and, if the job may have other nodes, a monitor of the rendezvous store.
"""

import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from torch.distributed import DistError
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous.api import RendezvousClosedError, RendezvousError, RendezvousTimeoutError
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from torch.distributed.run import get_args_parser, parse_min_max_nnodes
from torch.distributed.run import main as torchrun

from elasticqa.config.environment import is_slurm_job, peer_timeout_s, set_agent
from elasticqa.distributed.torch_internals import use_elastic_agent
from elasticqa.elastic.agent import ElasticAgent
from elasticqa.elastic.agent_directory import AgentDirectory
from elasticqa.elastic.end_causes import is_refusal, recorded_causes, write_missing_end
from elasticqa.elastic.stack_dumps import STACK_DUMP_SIGNAL
from elasticqa.elastic.store_monitor import StoreMonitor
from elasticqa.errors import ConfigError, ExitCode
from elasticqa.run.home import hold


def main(argv: Sequence[str]) -> int:
    """Run torchrun with its options until its workers have ended, and return the exit status.

    Raises:
        ChildFailedError: the workers and their restarts failed. If they refused the request, they have printed why,
            and nothing is raised.
    """
    # Ignore the signal with a handler: workers would inherit SIG_IGN, but must dump their stacks and die.
    signal.signal(STACK_DUMP_SIGNAL, lambda *_: None)
    with tempfile.TemporaryDirectory(prefix="elasticqa-agent-") as name:
        try:
            node = _Node(argv, AgentDirectory(Path(name)))
        except ConfigError as error:
            sys.stderr.write(f"elasticqa: {error}\n")
            return ExitCode.BAD_REQUEST
        set_agent(Path(name), os.getpid())
        use_elastic_agent(node.make_agent)
        with node.monitored():
            return _run(argv)


def _run(argv: Sequence[str]) -> int:
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
        return _report_lost_store(_reason(error))
    return 0


class _Node:
    """This node's elastic agent, which torch's launcher creates, and its monitor of the rendezvous store."""

    def __init__(self, options: Sequence[str], directory: AgentDirectory) -> None:
        known = get_args_parser().parse_args(options)
        self._peer_timeout_s = peer_timeout_s()
        self._directory = directory
        self._agent: ElasticAgent | None = None
        self._store_monitor: StoreMonitor | None = None
        if parse_min_max_nnodes(known.nnodes)[1] > 1:
            host, port = parse_rendezvous_endpoint(known.rdzv_endpoint, default_port=-1)
            self._store_monitor = StoreMonitor(host, port, self._peer_timeout_s, self._on_store_loss)

    def make_agent(self, *arguments: object, **options: object) -> ElasticAgent:
        """Return the agent; torch's launcher calls this in place of its own agent class."""
        self._agent = ElasticAgent(
            *arguments,
            directory=self._directory,
            has_peers=self._store_monitor is not None,
            peer_timeout_s=self._peer_timeout_s,
            **options,
        )
        return self._agent

    @contextmanager
    def monitored(self) -> Iterator[None]:
        """Monitor the store during the block, and then write the end of the attempt if its workers could not."""
        if self._store_monitor is not None:
            self._store_monitor.start()
        try:
            yield
        finally:
            if self._store_monitor is not None:
                self._store_monitor.stop()
            self._write_missing_end()

    def _on_store_loss(self, what: str) -> None:
        """End this process within seconds: without the store the worker group cannot be started again."""
        status = _report_lost_store(what)
        try:
            if self._agent is not None:
                self._agent.record("gone", f"ended: {what}")
                self._agent.end_workers()
            self._write_missing_end()
        finally:
            os._exit(status)

    def _write_missing_end(self) -> None:
        """Write the end of the last attempt if its workers could not, unless another process holds the run."""
        attempt = self._directory.announced_attempt()
        if attempt is None or not any(cause.is_failure for cause in recorded_causes(*attempt)):
            return
        # If the file system is full or unreachable, the next attempt writes the end.
        with suppress(OSError), hold(attempt[0]) as is_free:
            if is_free:
                write_missing_end(*attempt)


def _report_lost_store(what: str) -> int:
    """Print how to resume, and return the exit status; under Slurm the one that makes the script requeue the job."""
    sys.stderr.write(
        f"elasticqa: {what}: the node that hosts it is lost, or another program uses its port; start the same command "
        "again on every node, and training resumes from the last checkpoint\n"
    )
    sys.stderr.flush()
    return ExitCode.STOPPED if is_slurm_job() else ExitCode.STORE_LOST


def _reason(error: Exception) -> str:
    if isinstance(error, RendezvousTimeoutError):
        return "too few nodes joined the rendezvous in time"
    if isinstance(error, RendezvousClosedError):
        return "the rendezvous of this job is closed"
    return f"the rendezvous store is lost ({type(error).__name__})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
