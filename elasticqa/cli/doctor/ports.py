"""Ports: ranks of one node talk over loopback, and torchrun started by hand meets at port 29500."""

import socket
from collections.abc import Mapping

from elasticqa.cli.doctor.finding import Finding, fail, ok, warn
from elasticqa.distributed.addresses import listen

TORCHRUN_PORT = 29_500
_TIMEOUT_S = 3.0


def check(_: Mapping[str, str]) -> list[Finding]:
    """Check that connections inside this machine work, and torchrun's own port."""
    return [check_loopback(), check_port(TORCHRUN_PORT)]


def check_loopback(address: str = "127.0.0.1") -> Finding:
    """Return whether a port that the system chooses can be bound, reached and talked through."""
    advice = "bring the loopback interface up (ip link set lo up) and let the firewall pass it"
    try:
        with (
            socket.create_server((address, 0)) as server,
            socket.create_connection(server.getsockname(), timeout=_TIMEOUT_S) as client,
        ):
            server.settimeout(_TIMEOUT_S)
            accepted, _ = server.accept()
            with accepted:
                accepted.settimeout(_TIMEOUT_S)
                client.sendall(b"x")
                arrived = accepted.recv(1)
    except OSError as error:
        return fail("ports", f"{address} cannot be bound or reached ({error})", advice)
    if arrived != b"x":
        return fail("ports", f"{address} is reached, but what is sent does not arrive", advice)
    return ok("ports", f"ports of {address} can be bound and reached")


def check_port(port: int) -> Finding:
    """Return whether the port is free on all interfaces."""
    try:
        with listen(1, port):
            return ok("ports", f"port {port} is free")
    except OSError as error:
        found = f"port {port} is in use ({error.strerror})"
        advice = (
            "nothing of elasticqa needs it; give torchrun started by hand --master-port, torchx dist.ddp --rdzv_port"
        )
        return warn("ports", found, advice)
