"""Lines between ranks: whole ones, pieces of them, and what is none."""

import socket

import pytest

from elasticqa.distributed.addresses import listen
from elasticqa.elastic.transport import Wire, connect


def pair() -> tuple[Wire, socket.socket]:
    ours, theirs = socket.socketpair()
    return Wire(ours), theirs


def test_lines_come_whole_whatever_pieces_they_are_sent_in() -> None:
    wire, other = pair()
    other.sendall(b'{"a": 1}\n{"b"')
    assert wire.receive() == [{"a": 1}]
    other.sendall(b": 2}\n")
    assert wire.receive() == [{"b": 2}]
    other.close()
    assert wire.receive() is None
    wire.send({"c": 3})  # to nobody
    wire.close()


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n", b"[1]\n", b"\xff\n", b"x" * (1 << 16)])
def test_whoever_sends_no_lines_is_not_listened_to(data: bytes) -> None:
    wire, other = pair()
    lines: list[dict[str, object]] | None = []
    for _ in range(64):
        other.sendall(data)
        lines = wire.receive()
        if lines is None:
            break
    assert lines is None
    other.close()
    wire.close()


def test_connection_is_made_to_a_port_that_is_listened_on() -> None:
    with listen(1) as server:
        wire = connect("127.0.0.1", server.getsockname()[1], 5.0)
        accepted = Wire(server.accept()[0])
        wire.send({"token": "x"})
        assert accepted.first_lines() == [{"token": "x"}]
        port = server.getsockname()[1]
        accepted.close()
        wire.close()
    with pytest.raises(OSError, match="refused"):
        connect("127.0.0.1", port, 0.2)
