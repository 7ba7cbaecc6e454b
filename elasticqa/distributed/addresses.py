"""Ports and addresses at which the nodes of a job reach each other."""

import ipaddress
import shutil
import socket
import subprocess
from collections.abc import Sequence
from typing import Any

from elasticqa.errors import ConfigError

_FIRST_PORT, _NUM_PORTS = 20_000, 20_000
_LINK_LOCAL = ipaddress.ip_network("fe80::/10")


def job_port(job_id: str, shift: float = 0.0) -> int:
    """Return a port that is derived from a job's id, so that two jobs that share a node use different ports.

    ``shift`` moves the port by a fraction of the port range, so that one job can use several ports.
    """
    number = int(job_id) if job_id.isdigit() else sum(map(ord, job_id)) * 31
    return _FIRST_PORT + (number + round(shift * _NUM_PORTS)) % _NUM_PORTS


def endpoint(host: str, port: int) -> str:
    """Return ``host:port``, an IPv6 address in brackets.

    >>> endpoint("fd77::1", 29500)
    '[fd77::1]:29500'
    """
    return f"{f'[{host}]' if ':' in host else host}:{port}"


def first_host_of(node_list: str) -> str:
    """Return the name of the first node in a node list of Slurm.

    Raises:
        ConfigError: the list cannot be read on this node.
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
    """Return a socket that listens on all addresses of this machine, IPv4 and IPv6; port 0 stands for a free port."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=backlog)
    return socket.create_server(("", port), backlog=backlog)


def address_towards(first_host: str) -> str:
    """Return the address of this node in its route to the first node; on the first node itself, ``first_host``.

    Raises:
        ConfigError: this node does not find the first one, or only at a link-local address.
    """
    try:
        answers = [(answer[0], answer[4]) for answer in socket.getaddrinfo(first_host, 9, type=socket.SOCK_DGRAM)]
        family, target = choose_address(answers)
        if _is_link_local(target):
            raise ConfigError(
                f"first node {first_host!r} is found at the link-local address {target[0]} only, which others "
                "cannot use: give it an address of its network, in the name server or in /etc/hosts"
            )
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)  # chooses a route, sends no packet
            address = str(probe.getsockname()[0]).partition("%")[0]
    except OSError as error:
        raise ConfigError(
            f"first node {first_host!r} cannot be reached from {socket.gethostname()} ({error.strerror}): the nodes "
            "connect to it; add its name to the name server or to /etc/hosts of this node"
        ) from error
    # The first node may resolve its own name to a loopback address; other nodes do not.
    is_here = address == target[0] or ipaddress.ip_address(address).is_loopback
    return first_host if is_here else address


def choose_address(answers: Sequence[tuple[int, tuple[Any, ...]]]) -> tuple[int, tuple[Any, ...]]:
    """Return the first (family, address) that is not link-local, or the first of all if every one is."""
    return min(answers, key=lambda answer: _is_link_local(answer[1]))


def _is_link_local(target: tuple[Any, ...]) -> bool:
    """Whether an address is link-local IPv6; it needs an interface name (scope id), which torch does not accept."""
    return ipaddress.ip_address(target[0]) in _LINK_LOCAL
