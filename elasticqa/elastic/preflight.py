"""Preflight check: before a process group exists, nodes compare their facts; all refuse with the same line.

The first node of a job listens. The others send their facts and get the result. A node that joins a running job
compares itself with the facts that the first node left in the home directory.
"""

import json
import secrets
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticqa.distributed.addresses import listen
from elasticqa.elastic.compatibility import ABOUT_HOME, incompatibility
from elasticqa.errors import ConfigError
from elasticqa.run.journal_reader import json_object

ANSWER_TIMEOUT_S = 300.0
"""Time for all nodes to connect: a node may still import from a slow file system or build features."""
MARK_TIMEOUT_S = 10.0
"""Time for another node's file to appear on a shared file system that caches directories."""
_RETRY_S = 0.1
_LONGEST_MESSAGE = 1 << 20
_RESULT = "complaint"
"""Key of the result on the connection; nodes with another version of elasticqa read it too."""


@dataclass(frozen=True)
class JobNode:
    """This node among those that start a job together, and where the first one listens."""

    job_id: str
    number: int
    num_nodes: int
    first_host: str
    first_address: str
    port: int


def mark_path(home: Path, job_id: str) -> Path:
    """Return the path of the first node's file, by which other nodes check that they share its home directory."""
    return home / "slurm" / f"{job_id}.first-node"


def check_starting_nodes(node: JobNode, facts: Mapping[str, Any], home: Path, min_nodes: int) -> None:
    """Compare the nodes that start a job; each of them must call this.

    Args:
        node: this node.
        facts: of this node.
        home: home directory of the record on this node.
        min_nodes: minimum number of nodes; the job starts without others that do not answer.

    Raises:
        ConfigError: the nodes do not fit, or too few answer; with the same line on all that do.
    """
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    if node.number == 0:
        problem = _check_as_first(node, facts, home, min_nodes, deadline)
    else:
        problem = _check_with_first(node, facts, home, deadline)
    if problem:
        raise ConfigError(problem)


def check_joining_node(job_id: str, facts: Mapping[str, Any], home: Path) -> None:
    """Compare this node, which joins a running job, with the job's first node.

    Raises:
        ConfigError: they do not fit.
    """
    path = mark_path(home, job_id)
    try:
        first = json.loads(path.read_text(encoding="utf-8"))["facts"]
    except (OSError, ValueError, KeyError):
        raise ConfigError(
            f"{path} of the first node of job {job_id} cannot be read on {facts['host']}: {ABOUT_HOME}"
        ) from None
    problem = incompatibility(first, [facts], home)
    if problem:
        raise ConfigError(problem)


def _check_as_first(node: JobNode, facts: Mapping[str, Any], home: Path, min_nodes: int, deadline: float) -> str:
    """Collect the facts of the other nodes, send them the problem, and return it; empty without one."""
    mark = secrets.token_hex(8)
    path = mark_path(home, node.job_id)
    with ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"mark": mark, "facts": dict(facts)}), encoding="utf-8")
            server = stack.enter_context(listen(node.num_nodes, node.port))
        except OSError as error:
            return (
                f"{facts['host']} cannot write {path} or listen on port {node.port} ({error.strerror}): free them, or "
                "submit the job again"
            )
        answers: dict[int, dict[str, Any]] = {}
        connections = []
        while len(answers) < node.num_nodes - 1 and (left := deadline - time.monotonic()) > 0:
            server.settimeout(left)
            with suppress(OSError):
                connections.append(stack.enter_context(server.accept()[0]))
                answers |= _ask(connections[-1], {"job_id": node.job_id, "mark": mark})
        problem = incompatibility(facts, list(answers.values()), home) or _missing(node, set(answers), min_nodes)
        for connection in connections:
            _send(connection, {_RESULT: problem})
    return problem


def _missing(node: JobNode, answered: set[int], min_nodes: int) -> str:
    missing = sorted(set(range(1, node.num_nodes)) - answered)
    if not missing:
        return ""
    problem = f"no answer from node {', '.join(map(str, missing))} of {node.num_nodes} within {ANSWER_TIMEOUT_S:g} s"
    if node.num_nodes - len(missing) >= min_nodes:
        sys.stderr.write(f"elasticqa: {problem}; the job starts without these nodes\n")
        return ""
    return f"{problem}: see its log (torchx log), or it does not reach port {node.port} of {node.first_host}"


def _ask(connection: socket.socket, hello: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """Return the facts of the node that connected, by its number; empty if it is not a node of this job."""
    connection.settimeout(2 * MARK_TIMEOUT_S)
    _send(connection, hello)
    answer = _receive(connection)
    return {answer["number"]: answer} if answer and "number" in answer else {}


def _check_with_first(node: JobNode, facts: Mapping[str, Any], home: Path, deadline: float) -> str:
    """Send the facts to the first node and return the problem that it answers; empty without one."""
    unreachable = (
        f"{facts['host']} does not reach the first node, {node.first_host}, at {node.first_address} port "
        f"{node.port} within {ANSWER_TIMEOUT_S:g} s: see that node's log, and the firewall between the two"
    )
    while time.monotonic() < deadline:
        try:
            with socket.create_connection((node.first_address, node.port), timeout=ANSWER_TIMEOUT_S) as connection:
                hello = _receive(connection)
                if hello is not None and hello.get("job_id") == node.job_id:
                    sees_home = _sees(mark_path(home, node.job_id), hello["mark"])
                    _send(connection, {**facts, "sees_home": sees_home})
                    result = _receive(connection)
                    return unreachable if result is None else str(result[_RESULT])
        except OSError:
            pass
        time.sleep(_RETRY_S)
    return unreachable


def _sees(path: Path, mark: str) -> bool:
    """Whether the file has the mark, or gets it in time."""
    deadline = time.monotonic() + MARK_TIMEOUT_S
    while True:
        try:
            if json.loads(path.read_text(encoding="utf-8"))["mark"] == mark:
                return True
        except (OSError, ValueError, KeyError):
            pass
        if time.monotonic() > deadline:
            return False
        time.sleep(_RETRY_S)


def _send(connection: socket.socket, message: Mapping[str, Any]) -> None:
    # Ignore errors: the receiver detects a closed connection.
    with suppress(OSError):
        connection.sendall(json.dumps(message).encode() + b"\n")


def _receive(connection: socket.socket) -> dict[str, Any] | None:
    """Return the message; None if none arrives, or it is not a JSON object."""
    try:
        with connection.makefile("rb") as file:
            return json_object(file.readline(_LONGEST_MESSAGE))
    except OSError:
        return None
