"""Ports for servers that tests start in processes of their own."""

import random
import socket

_FIRST, _LAST = 10_000, 19_999
"""Below the ports of connections and of jobs of other tests, so that the port stays free until the server starts."""


def free_port() -> int:
    """Return a port of the loopback interface on which no process listens."""
    while True:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port := random.SystemRandom().randint(_FIRST, _LAST)))
            except OSError:
                continue
            return port
