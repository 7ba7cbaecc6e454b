"""Ports for servers that tests start in processes of their own."""

import random
import socket

_FIRST, _LAST = 10_000, 19_999
"""Below those that connections, and the jobs of other tests, are given: nobody takes one before the server is up."""


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on."""
    while True:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port := random.SystemRandom().randint(_FIRST, _LAST)))
            except OSError:
                continue
            return port
