"""Connections between the health-check threads of the ranks: lines of JSON on sockets with short timeouts."""

import json
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from selectors import EVENT_READ, DefaultSelector, SelectorKey
from typing import Any

from elasticqa.distributed.addresses import listen
from elasticqa.distributed.topology import Topology
from elasticqa.run.journal_reader import json_object

Line = dict[str, Any]
SEND_TIMEOUT_S = 2.0
_CONNECT_S = 60.0
"""Timeout for all ranks to connect to rank 0."""
_CHUNK = 1 << 16
_LONGEST = 1 << 20
_RETRY_S = 0.1


class Connection:
    """One end of a connection. `send` ignores errors; `receive` detects a closed connection."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(SEND_TIMEOUT_S)
        self.socket = connection
        self._rest = b""

    def send(self, line: Line) -> None:
        """Send a line; errors are ignored."""
        with suppress(OSError):
            self.socket.sendall(json.dumps(line).encode() + b"\n")

    def receive(self) -> list[Line] | None:
        """Return the lines that have arrived; None at the end of the connection, or if the peer sends no JSON lines."""
        try:
            data = self.socket.recv(_CHUNK)
        except TimeoutError:
            return []
        except OSError:
            return None
        if not data:
            return None
        *whole, self._rest = (self._rest + data).split(b"\n")
        lines = [json_object(raw) for raw in whole]
        # The peer is not a rank of this run: it sent something else than JSON objects.
        return None if len(self._rest) > _LONGEST or None in lines else [line for line in lines if line is not None]

    def first_lines(self) -> list[Line]:
        """Wait for the first line and return it with those that arrived with it; empty after a timeout."""
        lines: list[Line] | None = []
        until = time.monotonic() + SEND_TIMEOUT_S
        while lines == [] and time.monotonic() < until:
            lines = self.receive()
        return lines or []

    def close(self) -> None:
        """Close this end."""
        self.socket.close()


def connect(host: str, port: int, timeout_s: float) -> Connection:
    """Return a connection to a port; retries until the timeout.

    Raises:
        OSError: no connection within the timeout.
    """
    until = time.monotonic() + timeout_s
    while True:
        try:
            return Connection(socket.create_connection((host, port), timeout=timeout_s))
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(_RETRY_S)


class PeerConnections:
    """The connections of this rank: from rank 0 to every other rank, from the others to rank 0."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._selector = DefaultSelector()
        self._connections: dict[int, Connection] = {}
        self._listener: socket.socket | None = None
        self._token = ""
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._selector.register(self._wake_reader, EVENT_READ)

    def open(self) -> Iterator[tuple[int, list[Line]]]:
        """Connect to the peers and yield the lines that arrive meanwhile, by rank; every rank must call this."""
        address = None
        if self._topology.is_main:
            self._token = secrets.token_hex(16)
            self._listener = listen(self._topology.world_size)
            self._selector.register(self._listener, EVENT_READ)
            address = (self._listener.getsockname()[1], self._token)
        port, self._token = self._topology.broadcast(address) or (0, "")
        if self._topology.is_main:
            yield from self._accept_all()
        else:
            connection = connect(self._topology.main_address, port, _CONNECT_S)
            connection.send({"token": self._token, "rank": self._topology.rank})
            self._add(0, connection)

    def _accept_all(self) -> Iterator[tuple[int, list[Line]]]:
        """Accept the other ranks; one that does not connect in time counts as silent later."""
        assert self._listener is not None
        until = time.monotonic() + _CONNECT_S
        num_peers = self._topology.world_size - 1
        while len(self._connections) < num_peers and (left := until - time.monotonic()) > 0:
            self._listener.settimeout(left)
            with suppress(TimeoutError):
                yield from self._accept()
        self._listener.settimeout(None)
        if len(self._connections) == num_peers:
            # Later connections cannot come from a rank of this run.
            self._selector.unregister(self._listener)
            self._listener.close()

    def _accept(self) -> Iterator[tuple[int, list[Line]]]:
        """Accept one connection; yield its rank and the lines after its hello, if it is a rank of this run."""
        assert self._listener is not None
        connection = Connection(self._listener.accept()[0])
        hello, *lines = connection.first_lines() or [{}]
        rank = hello.get("rank")
        if hello.get("token") != self._token or not isinstance(rank, int):
            connection.close()
            return
        self._add(rank, connection)
        yield rank, lines

    def _add(self, rank: int, connection: Connection) -> None:
        self._connections[rank] = connection
        self._selector.register(connection.socket, EVENT_READ, rank)

    def wait(self, timeout_s: float) -> list[SelectorKey]:
        """Return the sockets that are ready to read, after the timeout at the latest or when `wake` is called."""
        return [key for key, _ in self._selector.select(timeout_s)]

    def receive(self, ready: list[SelectorKey]) -> Iterator[tuple[int, list[Line] | None]]:
        """Yield rank and lines of every connection in ``ready``; None for one that has ended and is closed now."""
        for key in ready:
            if key.fileobj is self._wake_reader:
                self._wake_reader.recv(64)
            elif key.fileobj is self._listener:
                yield from self._accept()
            else:
                lines = self._connections[key.data].receive()
                if lines is None:
                    self._selector.unregister(key.fileobj)
                    self._connections.pop(key.data).close()
                yield key.data, lines

    def send_to_main(self, line: Line) -> None:
        """Send a line to rank 0; on rank 0, or without a connection to it, do nothing."""
        if 0 in self._connections:
            self._connections[0].send(line)

    def send_to_all(self, line: Line) -> None:
        """Send a line to every connected peer."""
        for connection in self._connections.values():
            connection.send(line)

    def wake(self) -> None:
        """Make `wait` return now."""
        self._wake_writer.send(b"\0")

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        for channel in (self._listener, self._wake_reader, self._wake_writer):
            if channel is not None:
                channel.close()
        self._selector.close()
