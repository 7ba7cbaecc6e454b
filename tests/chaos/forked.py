"""Processes that are forked with their imports done, so that a schedule of many starts takes seconds.

A server that has imported the trainer forks the nodes. A node runs its command as the interpreter would:
``-m elasticqa.cli.launch``, which becomes ``-m elasticqa.elastic.torchrun``. Before its agent has any thread it forks a
server of its own, which forks the workers that torchrun starts. They are children of their agent as usual: the agent
adopts them (PR_SET_CHILD_SUBREAPER), waits for them and signals them by their process ids.

Only the start of the interpreter differs from ``python -m``.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

import psutil
from torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler import SubprocessHandler

PRELOADED = ("elasticqa.cli.launch", "elasticqa.elastic.torchrun", "elasticqa.training.main", "torch._dynamo")
WORKER_NAME = "chaos-worker"
"""Name of the processes that torchrun started: at most 15 bytes for the kernel."""
_PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 15, 36
_LONGEST_MESSAGE = 1 << 20


@dataclass(frozen=True)
class Command:
    """``python -m module arguments``, with its environment and the files for its output."""

    module: str
    arguments: list[str]
    environ: dict[str, str]
    stdout: str | None
    stderr: str | None


class BecomesError(Exception):
    """The process is to be replaced by another command (exec)."""

    def __init__(self, path: str, argv: Sequence[str], environ: dict[str, str]) -> None:
        super().__init__(path)
        self.command = _command_of(argv, environ)


def _command_of(argv: Sequence[str], environ: dict[str, str]) -> Command:
    """Return the command of an interpreter that runs a module."""
    arguments = [argument for argument in argv[1:] if argument != "-u"]
    assert arguments[0] == "-m", argv
    return Command(arguments[1], arguments[2:], dict(environ), None, None)


def _prctl(option: int, value: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _become(command: Command) -> None:
    """Run a command in this process until it ends: SystemExit is raised with its status."""
    os.environ.clear()
    os.environ.update(command.environ)
    sys.argv = [command.module, *command.arguments]
    # It runs as the main module, and other modules may import it again under its own name, as usual.
    sys.modules.pop(command.module, None)
    runpy.run_module(command.module, run_name="__main__", alter_sys=True)


def _redirect(command: Command) -> None:
    for path, descriptor in ((command.stdout, 1), (command.stderr, 2)):
        if path is not None:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(file, descriptor)
            os.close(file)


def _run(command: Command) -> None:
    """Run a command, and the commands that replace it (exec)."""
    current: Command | None = command
    while current is not None:
        try:
            _become(current)
        except BecomesError as request:
            current = request.command
        else:
            current = None


def _exec(path: str, argv: Sequence[str], environ: dict[str, str]) -> NoReturn:
    raise BecomesError(path, argv, environ)


def _send(channel: socket.socket, value: object) -> None:
    channel.send(json.dumps(value).encode())


def _receive(channel: socket.socket) -> Any:
    """Return the next message; None when the other side has closed."""
    message = channel.recv(_LONGEST_MESSAGE)
    return json.loads(message) if message else None


class Child(subprocess.Popen[bytes]):
    """A child process that this process has adopted instead of started."""

    def __init__(self, pid: int) -> None:  # the process exists already: nothing to start
        self.pid = pid
        self.returncode = None
        self._child_created = False
        self.args = WORKER_NAME

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.poll() is None:
            end = os.pidfd_open(self.pid)
            try:
                select.select([end], [], [], timeout)
            finally:
                os.close(end)
        status = self.poll()
        if status is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return status


def _run_node(command: Command) -> None:
    """Run a node's command; its workers are forked from a server that is forked now."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _redirect(command)
    agent, server = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        agent.close()
        worker = _serve_workers(server)
        if worker is None:
            os._exit(0)
        _redirect(worker)
        _run(worker)
        return
    server.close()

    def start(handler: SubprocessHandler, args: tuple[str, ...], env: dict[str, str]) -> Child:
        files = [file.name if file else None for file in (handler._stdout, handler._stderr)]
        worker = _command_of(args, env)
        _send(agent, asdict(Command(worker.module, worker.arguments, worker.environ, files[0], files[1])))
        return Child(_receive(agent))

    SubprocessHandler._popen = start  # type: ignore[assignment, method-assign]
    os.execve = _exec  # type: ignore[assignment]
    _run(command)


def _serve_workers(channel: socket.socket) -> Command | None:
    """Fork workers until the agent ends, then return None; in a worker, return the command to run."""
    while (request := _receive(channel)) is not None:
        pid_reader, pid_writer = os.pipe()
        may_begin, begin = os.pipe()
        between = os.fork()
        if between == 0:
            worker = os.fork()
            if worker == 0:
                for descriptor in (channel.detach(), pid_reader, pid_writer, begin):
                    os.close(descriptor)
                os.read(may_begin, 1)
                os.close(may_begin)
                os.setsid()
                _prctl(_PR_SET_NAME, WORKER_NAME.encode())
                return Command(**request)
            os.write(pid_writer, worker.to_bytes(4, "little"))
            os._exit(0)
        # The worker begins once the process between has ended and the agent is its parent.
        os.waitpid(between, 0)
        pid = int.from_bytes(os.read(pid_reader, 4), "little")
        os.write(begin, b"\0")
        for descriptor in (pid_reader, pid_writer, may_begin, begin):
            os.close(descriptor)
        _send(channel, pid)
    return None


def _serve_nodes(channel: socket.socket) -> Command | None:
    """Fork nodes and answer how they ended, until the client closes; in a node, return the command to run."""
    statuses: dict[int, int] = {}
    while (request := _receive(channel)) is not None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                statuses[ended[0]] = os.waitstatus_to_exitcode(ended[1])
        if isinstance(request, int):
            _send(channel, statuses.get(request))
            continue
        pid = os.fork()
        if pid == 0:
            channel.close()
            os.setsid()
            return Command(**request)
        statuses.pop(pid, None)  # of an earlier process that had the same number
        _send(channel, pid)
    return None


def kill_descendants() -> None:
    """Kill all processes that this one has started or adopted."""
    while children := psutil.Process().children(recursive=True):
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)


def main() -> None:
    """Serve the socket at standard input."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    for module in PRELOADED:
        importlib.import_module(module)
    gc.freeze()
    channel = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    _send(channel, "ready")
    node = _serve_nodes(channel)
    if node is not None:
        _run_node(node)
    else:
        kill_descendants()


if __name__ == "__main__":
    main()
