"""Lines of JSON between the ranks of a run, on sockets that never wait for long."""

import json
import socket
import time
from typing import Any

Line = dict[str, Any]
SEND_TIMEOUT_S = 2.0
_CHUNK = 1 << 16
_LONGEST = 1 << 20
_RETRY_S = 0.1


class Wire:
    """One end of a connection; what cannot be sent is left out, and the other side's end is noticed by reading."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(SEND_TIMEOUT_S)
        self.socket = connection
        self._rest = b""

    def send(self, line: Line) -> None:
        """Send a line, if the other side is there."""
        try:
            self.socket.sendall(json.dumps(line).encode() + b"\n")
        except OSError:
            return

    def receive(self) -> list[Line] | None:
        """Return the lines that have come, once there is something to read; None at the end of the connection."""
        try:
            data = self.socket.recv(_CHUNK)
        except TimeoutError:
            return []
        except OSError:
            return None
        if not data:
            return None
        *whole, self._rest = (self._rest + data).split(b"\n")
        lines = [_parsed(raw) for raw in whole]
        # Whoever sends something else is no rank of ours.
        return None if len(self._rest) > _LONGEST or None in lines else [line for line in lines if line is not None]

    def first_lines(self) -> list[Line]:
        """Wait for a line, not for long, and return it with those that came along; none where none comes."""
        lines: list[Line] | None = []
        until = time.monotonic() + SEND_TIMEOUT_S
        while lines == [] and time.monotonic() < until:
            lines = self.receive()
        return lines or []

    def close(self) -> None:
        """Close this end."""
        self.socket.close()


def _parsed(raw: bytes) -> Line | None:
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None


def connect(host: str, port: int, timeout_s: float) -> Wire:
    """Return a connection to a port.

    Raises:
        OSError: not within the time.
    """
    until = time.monotonic() + timeout_s
    while True:
        try:
            return Wire(socket.create_connection((host, port), timeout=timeout_s))
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(_RETRY_S)
