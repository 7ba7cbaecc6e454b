"""A job of real agents on this machine that a test hits."""

import contextlib
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from elasticqa.elastic.failure_detector import DEFAULT_PEER_TIMEOUT_S, PEER_TIMEOUT_VARIABLE
from tests.support import training
from tests.support.paths import REPOSITORY
from tests.support.processes import until

PATIENCE_S = 280.0
"""For what must happen at all; nothing is judged by how long it takes."""


class Job:
    """The nodes of a job on this machine."""

    def __init__(
        self,
        folder: Path,
        *flags: str,
        nnodes: str,
        nproc: int = 1,
        module: str = "",
        peer_timeout_s: float = DEFAULT_PEER_TIMEOUT_S,
        max_restarts: int = 2,
        inside: Sequence[list[str]] = (),
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.home = folder / "home"
        self.logs = folder
        self.environ = training.environment(
            self.home, ELASTICQA_RUN_ID="RUN", TORCHX_JOB_ID=f"local_cwd://torchx/{folder.name}-{os.getpid()}"
        )
        self.environ[PEER_TIMEOUT_VARIABLE] = f"{peer_timeout_s:g}"
        launch = [f"--nnodes={nnodes}", f"--nproc-per-node={nproc}", f"--max-restarts={max_restarts}"]
        self.command = [sys.executable, "-m", "elasticqa.cli.launch", *launch, *flags]
        if module:
            # As the launcher does: ranks of a new group would read the addresses of the one before.
            self.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
            options = ["--standalone", f"--nproc-per-node={nproc}", f"--max-restarts={max_restarts}"]
            self.command = [sys.executable, "-m", "elasticqa.elastic.torchrun", *options, "-m", module, *flags]
        self.inside = inside
        """Of each node, the command that becomes its own on a machine of its own; none: all are on this machine."""
        self.nodes: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        """Return the agent of a new node."""
        inside = self.inside[len(self.nodes)] if self.inside else []
        with (self.logs / f"node-{len(self.nodes)}.log").open("wb") as log:
            node = subprocess.Popen([*inside, *self.command], cwd=REPOSITORY, env=self.environ, stdout=log, stderr=log)
        self.nodes.append(node)
        return node

    def told(self) -> str:
        """Return all that the nodes have printed."""
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.logs.glob("node-*.log")))

    @property
    def directory(self) -> Path:
        return self.home / "runs" / "RUN"

    def lines(self, attempt: int) -> dict[str, list[dict[str, Any]]]:
        """Return the journal of an attempt; empty before it has begun."""
        try:
            return training.journal(self.directory, attempt)
        except FileNotFoundError:
            return {}

    def until(self, condition: Callable[[], Any]) -> None:
        """Return once the condition holds."""
        until(condition, self.told, PATIENCE_S)

    def until_step(self, attempt: int, world_size: int) -> None:
        """Return once an attempt of so many ranks has done some steps."""
        self.until(lambda: len(self.lines(attempt).get("step", [])) > 3)
        assert self.lines(attempt)["attempt"][0]["world_size"] == world_size

    def until_world(self, world_size: int) -> int:
        """Return the first attempt of so many ranks once it has done some steps."""

        def found() -> int:
            attempts = itertools.takewhile(self.lines, itertools.count(1))
            sizes = {attempt: self.lines(attempt)["attempt"][0]["world_size"] for attempt in attempts}
            return next((attempt for attempt, size in sizes.items() if size == world_size), 0)

        self.until(found)
        attempt = found()
        self.until_step(attempt, world_size)
        return attempt

    def worker(self, rank: int) -> psutil.Process:
        """Return the living process of a rank."""
        for node in self.nodes:
            if node.poll() is None:
                for process in psutil.Process(node.pid).children():
                    with contextlib.suppress(psutil.NoSuchProcess):
                        if process.environ().get("RANK") == str(rank):
                            return process
        raise AssertionError(self.told())

    def end(self) -> None:
        for node in self.nodes:
            if node.poll() is None:
                for process in psutil.Process(node.pid).children(recursive=True):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()
                node.kill()
            node.wait()


@contextlib.contextmanager
def running(job: Job) -> Iterator[Job]:
    try:
        job.start()
        yield job
    finally:
        job.end()
