"""Where the nodes of a job meet, and where each is reached by the others."""

import ipaddress
import shutil
import socket
import subprocess
from collections.abc import Sequence
from typing import Any

from elasticqa.errors import ConfigError

_FIRST_PORT, _NUM_PORTS = 20_000, 20_000
_OF_LINK = ipaddress.ip_network("fe80::/10")


def job_port(job_id: str, shift: float = 0.0) -> int:
    """Return a port that follows from a job: two jobs that share a node must not meet at one.

    Args:
        job_id: of it.
        shift: which of its ports, as a share of all that there are.
    """
    number = int(job_id) if job_id.isdigit() else sum(map(ord, job_id)) * 31
    return _FIRST_PORT + (number + round(shift * _NUM_PORTS)) % _NUM_PORTS


def endpoint(host: str, port: int) -> str:
    """Return a port of a host as one text, an IPv6 address in brackets.

    >>> endpoint("fd77::1", 29500)
    '[fd77::1]:29500'
    """
    return f"{f'[{host}]' if ':' in host else host}:{port}"


def first_of(node_list: str) -> str:
    """Return the name of the first node of a list as Slurm writes it.

    Raises:
        ConfigError: it cannot be read here.
    """
    scontrol = shutil.which("scontrol")
    if scontrol is None:
        raise ConfigError(f"node list {node_list!r} cannot be read: scontrol is not on PATH of this node")
    done = subprocess.run([scontrol, "show", "hostnames", node_list], capture_output=True, text=True, check=False)
    if done.returncode != 0 or not done.stdout.strip():
        raise ConfigError(
            f"node list {node_list!r} cannot be read: scontrol says {done.stderr.strip() or 'nothing'}; is this node's "
            "Slurm set up?"
        )
    return done.stdout.split()[0]


def listen(backlog: int, port: int = 0) -> socket.socket:
    """Return a socket that listens on a port of every address of this machine, IPv6 ones where it has any.

    Args:
        backlog: connections that may wait.
        port: 0 for a free one.
    """
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=backlog)
    return socket.create_server(("", port), backlog=backlog)


def address_towards(first_host: str) -> str:
    """Return this node's address towards the first one; on the first node itself, the name that all have for it.

    Raises:
        ConfigError: this node does not find the first one, or not at an address that others can be told.
    """
    try:
        answers = [(answer[0], answer[4]) for answer in socket.getaddrinfo(first_host, 9, type=socket.SOCK_DGRAM)]
        family, target = one_for_all(answers)
        if _is_of_link(target):
            raise ConfigError(
                f"first node {first_host!r} is found at {target[0]} only, which has no meaning without an interface of "
                "the node that asks: give it an address of its network, in the name server or in /etc/hosts"
            )
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)  # sends nothing
            address = str(probe.getsockname()[0]).partition("%")[0]
    except OSError as error:
        raise ConfigError(
            f"first node {first_host!r} cannot be reached from {socket.gethostname()} ({error.strerror}): the nodes "
            "meet there; add its name to the name server or to /etc/hosts of this node"
        ) from error
    # A first node may resolve its own name to a loopback address; others do not.
    is_here = address == target[0] or ipaddress.ip_address(address).is_loopback
    return first_host if is_here else address


def one_for_all(answers: Sequence[tuple[int, tuple[Any, ...]]]) -> tuple[int, tuple[Any, ...]]:
    """Return the first family and address that other nodes can be told, or the first of all where there is none.

    A name server may put the address of a link before them.
    """
    return min(answers, key=lambda answer: _is_of_link(answer[1]))


def _is_of_link(target: tuple[Any, ...]) -> bool:
    """Whether an address is one of IPv6 that every link has anew: torch takes none with an interface in it."""
    return ipaddress.ip_address(target[0]) in _OF_LINK
