"""A job on this machine: agents with one rendezvous endpoint, and the progress that they print."""

import contextlib
import itertools
import os
import re
import signal
import socket
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from elasticqa.cli.launch import Launch, torchrun_options
from tests.chaos.forked import Command
from tests.chaos.processes import Starter
from tests.support import training

MAX_RESTARTS = 20
_PROGRESS_LINE = re.compile(r"run \S+, attempt (?P<attempt>\d+):|step (?P<step>\d+)/\d+ ")
_numbers = itertools.count()


@dataclass
class Node:
    """An agent, and its output."""

    pid: int
    log: Path
    offset: int = 0
    attempt: int = 0
    status: int | None = None


class ChaosJob:
    """The agents of one run, started as a scheduler starts them, and observed from outside."""

    def __init__(self, starter: Starter, home: Path, nnodes: str, flags: list[str]) -> None:
        """Prepare; nothing is started.

        Args:
            starter: starts its agents.
            home: home directory of the record; logs are written beside it.
            nnodes: MIN:MAX.
            flags: of the trainer.
        """
        self._starter = starter
        self._arguments = [f"--nnodes={nnodes}", "--nproc-per-node=1", f"--max-restarts={MAX_RESTARTS}", *flags]
        self._logs = home.with_name(f"{home.name}-logs")
        self._logs.mkdir()
        self.run_id = "chaos"
        self._environ = training.environment(home, TORCHX_JOB_ID=_free_job_id(), ELASTICQA_RUN_ID=self.run_id)
        self.directory = home / "runs" / self.run_id
        self.nodes: list[Node] = []
        self.attempt = 0
        """The newest attempt that has printed a line."""
        self.step = 0
        """The newest step that it has printed."""
        self.first_step_at: dict[int, float] = {}
        """Attempt -> time.monotonic() when its first step was seen."""

    def start_nodes(self, count: int) -> None:
        """Start agents."""
        for _ in range(count):
            log = self._logs / f"node-{len(self.nodes)}.log"
            log.touch()
            command = Command("elasticqa.cli.launch", self._arguments, self._environ, str(log), str(log))
            self.nodes.append(Node(self._starter.start(command), log))

    def live(self) -> list[Node]:
        """Return the nodes whose agents run."""
        for node in self.nodes:
            if node.status is None:
                node.status = self._starter.status(node.pid)
        return [node for node in self.nodes if node.status is None]

    def statuses(self) -> list[int | None]:
        """Return the exit status of every node that was started; None of those that run."""
        self.live()
        return [node.status for node in self.nodes]

    def workers(self, node: Node) -> list[psutil.Process]:
        """Return the training processes of a node."""
        return self._starter.workers(node.pid)

    def read_output(self) -> None:
        """Read what the nodes have printed since the last call."""
        for node in self.nodes:
            if node.log.stat().st_size == node.offset:
                continue
            with node.log.open("rb") as file:
                file.seek(node.offset)
                new = file.read()
            whole = new[: new.rfind(b"\n") + 1]
            node.offset += len(whole)
            for line in _PROGRESS_LINE.finditer(whole.decode(errors="replace")):
                self._note_progress(node, line["attempt"], line["step"])

    def _note_progress(self, node: Node, attempt: str | None, step: str | None) -> None:
        if attempt is not None:
            node.attempt = int(attempt)
        if node.attempt > self.attempt:
            self.attempt, self.step = node.attempt, 0
        if step is not None and node.attempt == self.attempt:
            self.step = int(step)
            self.first_step_at.setdefault(self.attempt, time.monotonic())

    def output(self, num_lines: int = 25) -> str:
        """Return the last lines of every node, without steps."""
        parts = []
        for node in self.nodes:
            lines = node.log.read_text(encoding="utf-8", errors="replace").splitlines()
            other = [line for line in lines if not _PROGRESS_LINE.match(line)]
            parts.append(f"--- {node.log.name}, status {node.status}\n" + "\n".join(other[-num_lines:]))
        return "\n".join(parts)

    def has_printed(self, text: str, since: dict[int, int]) -> bool:
        """Whether a node has printed a text since ``output_sizes`` returned ``since``."""
        for number, node in enumerate(self.nodes):
            with node.log.open("rb") as file:
                file.seek(since.get(number, 0))
                if text.encode() in file.read():
                    return True
        return False

    def output_sizes(self) -> dict[int, int]:
        """Return how many bytes each node has printed."""
        return {number: node.log.stat().st_size for number, node in enumerate(self.nodes)}

    def kill_all(self) -> None:
        """Cut the power of all nodes."""
        for node in self.live():
            kill(node.pid, *(worker.pid for worker in self.workers(node)))


def kill(*pids: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to processes; those that have ended are ignored."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _free_job_id() -> str:
    """Return the id of a job whose rendezvous port is free."""
    while True:
        job_id = f"local_cwd://chaos/{os.getpid()}-{next(_numbers)}"
        options = torchrun_options(Launch(2, 2, 1, 0), {"TORCHX_JOB_ID": job_id})
        (endpoint,) = (text for text in options if text.startswith("--rdzv-endpoint="))
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("localhost", int(endpoint.rpartition(":")[2])))
            return job_id
