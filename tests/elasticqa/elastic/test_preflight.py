"""Nodes of a job that compare themselves: threads on this machine, over real connections."""

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from elasticqa.elastic import preflight
from elasticqa.elastic.preflight import Place, attend, join, mark_path
from elasticqa.errors import ConfigError
from tests.support.nodes import node


@pytest.fixture
def port() -> int:
    with socket.create_server(("", 0)) as server:
        return int(server.getsockname()[1])


def place(port: int, number: int, num_nodes: int = 2) -> Place:
    return Place("7", number, num_nodes, "node1", "127.0.0.1", port)


def outcomes(calls: list[tuple[Place, dict[str, Any], Path]], min_nodes: int) -> list[str]:
    """Return what each node is told, empty where it may go on."""
    told = ["no end"] * len(calls)

    def one(index: int) -> None:
        try:
            attend(*calls[index], min_nodes)
            told[index] = ""
        except ConfigError as error:
            told[index] = str(error)

    threads = [threading.Thread(target=one, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return told


def test_nodes_that_are_alike_go_on(port: int, tmp_path: Path) -> None:
    calls = [(place(port, number, 3), node(number), tmp_path) for number in (2, 1, 0)]
    assert outcomes(calls, 3) == ["", "", ""]


def test_difference_is_told_to_all_in_the_same_words(port: int, tmp_path: Path) -> None:
    versions = {"python": "3.11.7", "torch": "2.12.0"}
    calls = [
        (place(port, 0, 3), node(0), tmp_path),
        (place(port, 1, 3), node(1), tmp_path),
        (place(port, 2, 3), node(2, versions=versions), tmp_path),
    ]
    told = outcomes(calls, 3)
    assert told[0].startswith("torch is 2.13.0 on node1 and 2.12.0 on node3: ")
    assert told == [told[0]] * 3


def test_home_that_is_not_shared_is_refused_on_both(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "MARK_TIMEOUT_S", 0.3)
    # What an earlier life of the same job left there is no proof.
    mark_path(tmp_path / "own", "7").parent.mkdir(parents=True)
    mark_path(tmp_path / "own", "7").write_text('{"mark": "old"}', encoding="utf-8")
    told = outcomes([(place(port, 0), node(0), tmp_path), (place(port, 1), node(1), tmp_path / "own")], 2)
    assert told == [told[0]] * 2
    assert "is not the same directory on node1 and node2" in told[0]


@pytest.mark.parametrize(("min_nodes", "expected"), [(2, "no answer from node 1 of 2 within 0.5 s"), (1, "")])
def test_silent_node_ends_the_job_unless_fewer_are_enough(
    min_nodes: int,
    expected: str,
    port: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(preflight, "ANSWER_TIMEOUT_S", 0.5)
    (told,) = outcomes([(place(port, 0), node(0), tmp_path)], min_nodes)
    assert told.startswith(expected)
    assert bool(told) == bool(expected)
    assert ("going on without" in capsys.readouterr().err) != bool(expected)


def test_first_node_that_does_not_listen_is_named(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "ANSWER_TIMEOUT_S", 0.5)
    (told,) = outcomes([(place(port, 1), node(1), tmp_path)], 2)
    assert told.startswith(f"node2 does not reach the first node, node1, at 127.0.0.1 port {port} within 0.5 s")


def test_stranger_on_the_port_is_no_node(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "MARK_TIMEOUT_S", 0.3)
    told: list[str] = []
    first = threading.Thread(
        target=lambda: told.extend(outcomes([(place(port, 0), node(0), tmp_path)], 2)), daemon=True
    )
    first.start()
    for words in (b"GET / HTTP/1.0\r\n\r\n", b"[1]\n", b""):
        while True:
            try:
                with socket.create_connection(("127.0.0.1", port)) as connection:
                    connection.sendall(words)
                break
            except ConnectionRefusedError:
                continue
    assert outcomes([(place(port, 1), node(1), tmp_path)], 2) == [""]
    first.join()
    assert told == [""]


def test_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("", 0)) as server:
        (told,) = outcomes([(place(server.getsockname()[1], 0), node(0), tmp_path)], 2)
    assert "node1 cannot write" in told
    assert "in use" in told


def test_node_that_joins_is_compared_with_the_first(port: int, tmp_path: Path) -> None:
    outcomes([(place(port, 0, 1), node(0), tmp_path)], 1)
    join("7", node(0, host="node9"), tmp_path)
    with pytest.raises(ConfigError, match=r"torch is 2\.13\.0 on node1 and 2\.12\.0 on node9: "):
        join("7", node(0, host="node9", versions={"python": "3.11.7", "torch": "2.12.0"}), tmp_path)
    with pytest.raises(
        ConfigError, match=r"of the first node of job 7 cannot be read on node9: all nodes need one home"
    ):
        join("7", node(0, host="node9"), tmp_path / "own")
