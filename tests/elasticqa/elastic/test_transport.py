"""Connections between ranks: lines that arrive in pieces, and peers that send no lines."""

import socket

import pytest

from elasticqa.distributed.addresses import listen
from elasticqa.elastic.transport import Connection, connect


def pair() -> tuple[Connection, socket.socket]:
    ours, theirs = socket.socketpair()
    return Connection(ours), theirs


def test_lines_are_whole_when_they_arrive_in_pieces() -> None:
    connection, peer = pair()
    peer.sendall(b'{"a": 1}\n{"b"')
    assert connection.receive() == [{"a": 1}]
    peer.sendall(b": 2}\n")
    assert connection.receive() == [{"b": 2}]
    peer.close()
    assert connection.receive() is None
    connection.send({"c": 3})  # is dropped
    connection.close()


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n", b"[1]\n", b"\xff\n", b"x" * (1 << 16)])
def test_peer_that_sends_no_json_lines_is_disconnected(data: bytes) -> None:
    connection, peer = pair()
    lines: list[dict[str, object]] | None = []
    for _ in range(64):
        peer.sendall(data)
        lines = connection.receive()
        if lines is None:
            break
    assert lines is None
    peer.close()
    connection.close()


def test_connect_reaches_a_listening_port_and_raises_without_one() -> None:
    with listen(1) as server:
        port = server.getsockname()[1]
        connection = connect("127.0.0.1", port, 5.0)
        accepted = Connection(server.accept()[0])
        connection.send({"token": "x"})
        assert accepted.first_lines() == [{"token": "x"}]
        accepted.close()
        connection.close()
    with pytest.raises(OSError, match="refused"):
        connect("127.0.0.1", port, 0.2)
