"""Where a node is reached by the others of its job."""

import ipaddress
import socket

from elasticqa.errors import ConfigError


def address_towards(first_host: str) -> str:
    """Return this node's address towards the first one; on the first node itself, the name that all have for it.

    Raises:
        ConfigError: this node does not find the first one.
    """
    try:
        family, _, _, _, target = socket.getaddrinfo(first_host, 9, type=socket.SOCK_DGRAM)[0]
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
