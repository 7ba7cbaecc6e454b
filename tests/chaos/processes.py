"""How the tests start nodes: forked from a server with its imports done, or as new interpreters."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

import psutil

from tests.chaos.forked import WORKER_NAME, Command
from tests.support.paths import REPOSITORY


class Starter(Protocol):
    """Starts processes and returns how they ended."""

    def start(self, command: Command) -> int:
        """Return the process id of a command that runs now."""

    def status(self, pid: int) -> int | None:
        """Return the exit status of a process, negative after a signal, or None while it runs."""

    def workers(self, agent: int) -> list[psutil.Process]:
        """Return the training processes of an agent."""

    def close(self) -> None:
        """Kill what still runs."""


class ForkedStarter:
    """Forks nodes from a server that has imported what they need."""

    def __init__(self, environ: dict[str, str]) -> None:
        self._channel, server = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.forked"], cwd=REPOSITORY, env=environ, stdin=server.fileno()
        )
        server.close()
        assert self._ask(None) == "ready"

    def _ask(self, request: object) -> object:
        if request is not None:
            self._channel.send(json.dumps(request).encode())
        return json.loads(self._channel.recv(1 << 16))

    def start(self, command: Command) -> int:
        pid = self._ask(asdict(command))
        assert isinstance(pid, int)
        return pid

    def status(self, pid: int) -> int | None:
        status = self._ask(pid)
        assert status is None or isinstance(status, int)
        return status

    def workers(self, agent: int) -> list[psutil.Process]:
        return _children(agent, lambda process: process.name() == WORKER_NAME)

    def close(self) -> None:
        self._channel.close()
        self._server.wait(timeout=60)


class ExecutedStarter:
    """Starts nodes as a scheduler does."""

    def __init__(self) -> None:
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, command: Command) -> int:
        with Path(command.stdout or os.devnull).open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", command.module, *command.arguments],
                cwd=REPOSITORY,
                env=command.environ,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._processes[process.pid] = process
        return process.pid

    def status(self, pid: int) -> int | None:
        return self._processes[pid].poll()

    def workers(self, agent: int) -> list[psutil.Process]:
        return _children(agent, lambda process: "elasticqa.training.main" in process.cmdline())

    def close(self) -> None:
        for process in self._processes.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
            process.kill()
            process.wait()


def _children(agent: int, is_wanted: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in psutil.Process(agent).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if is_wanted(process):
                    found.append(process)
    return found
