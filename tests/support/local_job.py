"""A job of real agents on this machine, which a test disturbs."""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import psutil

from elasticqa.config.environment import DEFAULT_PEER_TIMEOUT_S, PEER_TIMEOUT_VARIABLE
from elasticqa.errors import ExitCode
from tests.support import training
from tests.support.paths import REPOSITORY
from tests.support.processes import until

PATIENCE_S = 280.0
"""A limit for what must happen; no test measures the time."""


class Job:
    """The nodes of a job on this machine: a context manager that starts the first one and ends all of them."""

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
        """For each node, the command prefix that runs it on a machine of its own; empty: all run on this machine."""
        self.nodes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        """Start the first node."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the agents and workers that still run."""
        for node in self.nodes:
            if node.poll() is None:
                for process in psutil.Process(node.pid).children(recursive=True):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()
                node.kill()
            node.wait()

    def start(self) -> subprocess.Popen[bytes]:
        """Start another node and return its agent."""
        inside = self.inside[len(self.nodes)] if self.inside else []
        with (self.logs / f"node-{len(self.nodes)}.log").open("wb") as log:
            node = subprocess.Popen([*inside, *self.command], cwd=REPOSITORY, env=self.environ, stdout=log, stderr=log)
        self.nodes.append(node)
        return node

    def start_second(self) -> subprocess.Popen[bytes]:
        """Start another node once the first one listens, so that the first one hosts the store; return its agent."""
        self.until(lambda: any(c.status == "LISTEN" for c in psutil.Process(self.nodes[0].pid).net_connections()))
        return self.start()

    def output(self) -> str:
        """Return all that the nodes have printed."""
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.logs.glob("node-*.log")))

    @property
    def directory(self) -> Path:
        """The run directory."""
        return self.home / "runs" / "RUN"

    def lines(self, attempt: int) -> dict[str, list[dict[str, Any]]]:
        """Return the journal of an attempt by kind of line; empty before it has begun."""
        try:
            return training.journal(self.directory, attempt)
        except FileNotFoundError:
            return {}

    def until(self, condition: Callable[[], Any]) -> None:
        """Wait until the condition holds."""
        until(condition, self.output, PATIENCE_S)

    def until_step(self, attempt: int, world_size: int) -> None:
        """Wait until an attempt has done some steps; it has so many ranks."""
        self.until(lambda: len(self.lines(attempt).get("step", [])) > 3)
        assert self.lines(attempt)["attempt"][0]["world_size"] == world_size

    def until_world(self, world_size: int) -> int:
        """Wait until an attempt of so many ranks has done some steps, and return its number."""

        def found() -> int:
            attempts = itertools.takewhile(self.lines, itertools.count(1))
            sizes = {attempt: self.lines(attempt)["attempt"][0]["world_size"] for attempt in attempts}
            return next((attempt for attempt, size in sizes.items() if size == world_size), 0)

        self.until(found)
        attempt = found()
        self.until_step(attempt, world_size)
        return attempt

    def expect_exit(self, *codes: int) -> None:
        """Wait until all nodes have ended, with these exit codes in the order of their start."""
        assert [node.wait(PATIENCE_S) for node in self.nodes] == [*codes], self.output()

    def stop(self) -> None:
        """Ask the nodes that run to stop, one after the other, and wait for each."""
        for node in self.nodes:
            if node.poll() is None:
                node.send_signal(signal.SIGTERM)
                assert node.wait(PATIENCE_S) == ExitCode.STOPPED, self.output()

    def worker(self, rank: int) -> psutil.Process:
        """Return the living process of a rank."""
        for node in self.nodes:
            if node.poll() is None:
                for process in psutil.Process(node.pid).children():
                    with contextlib.suppress(psutil.NoSuchProcess):
                        if process.environ().get("RANK") == str(rank):
                            return process
        raise AssertionError(self.output())
