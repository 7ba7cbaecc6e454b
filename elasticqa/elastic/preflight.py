"""Whether the nodes of a job fit together: asked before any process group, and refused in the same line on all."""

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
from elasticqa.elastic.compatibility import ABOUT_HOME, complaint_of
from elasticqa.errors import ConfigError

ANSWER_TIMEOUT_S = 300.0
"""For all nodes: one may still import from a slow file system, or make features, when another is ready."""
MARK_TIMEOUT_S = 10.0
"""For a file of another node to be seen on a shared file system that keeps directories in a cache."""
_RETRY_S = 0.1
_LONGEST_MESSAGE = 1 << 20


@dataclass(frozen=True)
class Place:
    """Where this node stands among those that start a job together, and where the first one listens."""

    job_id: str
    number: int
    num_nodes: int
    first_host: str
    first_address: str
    port: int


def mark_path(home: Path, job_id: str) -> Path:
    """Return the file by which other nodes know that they see the home directory of the first one."""
    return home / "slurm" / f"{job_id}.first-node"


def attend(place: Place, facts: Mapping[str, Any], home: Path, min_nodes: int) -> None:
    """Compare all nodes; each of them must call this.

    Args:
        place: of this node.
        facts: of this node.
        home: the home directory of the record on this node.
        min_nodes: how many nodes are enough; others that do not answer are gone on without.

    Raises:
        ConfigError: they do not fit, or too few answer; the same line on all that do.
    """
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    if place.number == 0:
        complaint = _preside(place, facts, home, min_nodes, deadline)
    else:
        complaint = _answer(place, facts, home, deadline)
    if complaint:
        raise ConfigError(complaint)


def join(job_id: str, facts: Mapping[str, Any], home: Path) -> None:
    """Compare this node, which joins a job that runs, with the job's first node.

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
    complaint = complaint_of(first, [facts], home)
    if complaint:
        raise ConfigError(complaint)


def _preside(place: Place, facts: Mapping[str, Any], home: Path, min_nodes: int, deadline: float) -> str:
    """Return the complaint after all other nodes have been told."""
    mark = secrets.token_hex(8)
    path = mark_path(home, place.job_id)
    with ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"mark": mark, "facts": dict(facts)}), encoding="utf-8")
            server = stack.enter_context(listen(place.num_nodes, place.port))
        except OSError as error:
            return (
                f"{facts['host']} cannot write {path} or listen on port {place.port} ({error.strerror}): free them, or "
                "submit the job again"
            )
        answers: dict[int, dict[str, Any]] = {}
        connections = []
        while len(answers) < place.num_nodes - 1 and (left := deadline - time.monotonic()) > 0:
            server.settimeout(left)
            with suppress(OSError):
                connections.append(stack.enter_context(server.accept()[0]))
                answers |= _ask(connections[-1], {"job_id": place.job_id, "mark": mark})
        complaint = complaint_of(facts, list(answers.values()), home) or _missing(place, set(answers), min_nodes)
        for connection in connections:
            _send(connection, {"complaint": complaint})
    return complaint


def _missing(place: Place, answered: set[int], min_nodes: int) -> str:
    missing = sorted(set(range(1, place.num_nodes)) - answered)
    if not missing:
        return ""
    told = f"no answer from node {', '.join(map(str, missing))} of {place.num_nodes} within {ANSWER_TIMEOUT_S:g} s"
    if place.num_nodes - len(missing) >= min_nodes:
        sys.stderr.write(f"elasticqa: {told}; going on without\n")
        return ""
    return f"{told}: its log (torchx log) tells why, or it does not reach port {place.port} of {place.first_host}"


def _ask(connection: socket.socket, hello: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """Return the facts of the node that connected, by its number; nothing if it is no node of this job."""
    connection.settimeout(2 * MARK_TIMEOUT_S)
    _send(connection, hello)
    answer = _receive(connection)
    return {answer["number"]: answer} if answer and "number" in answer else {}


def _answer(place: Place, facts: Mapping[str, Any], home: Path, deadline: float) -> str:
    unreachable = (
        f"{facts['host']} does not reach the first node, {place.first_host}, at {place.first_address} port "
        f"{place.port} within {ANSWER_TIMEOUT_S:g} s: see that node's log, and the firewall between the two"
    )
    while time.monotonic() < deadline:
        try:
            with socket.create_connection((place.first_address, place.port), timeout=ANSWER_TIMEOUT_S) as connection:
                hello = _receive(connection)
                if hello is not None and hello.get("job_id") == place.job_id:
                    sees_home = _sees(mark_path(home, place.job_id), hello["mark"])
                    _send(connection, {**facts, "sees_home": sees_home})
                    verdict = _receive(connection)
                    return unreachable if verdict is None else str(verdict["complaint"])
        except OSError:
            pass
        time.sleep(_RETRY_S)
    return unreachable


def _sees(path: Path, mark: str) -> bool:
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
    # Whoever is gone is noticed by those who wait for it.
    with suppress(OSError):
        connection.sendall(json.dumps(message).encode() + b"\n")


def _receive(connection: socket.socket) -> dict[str, Any] | None:
    """Return the message, or None if none comes or what comes is none."""
    try:
        with connection.makefile("rb") as file:
            message = json.loads(file.readline(_LONGEST_MESSAGE))
    except (OSError, ValueError):
        return None
    return message if isinstance(message, dict) else None
