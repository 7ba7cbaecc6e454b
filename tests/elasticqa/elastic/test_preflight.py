"""Preflight check of nodes: threads on this machine, over real connections."""

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from elasticqa.elastic import preflight
from elasticqa.elastic.preflight import JobNode, check_joining_node, check_starting_nodes, mark_path
from elasticqa.errors import ConfigError
from tests.support.nodes import node
from tests.support.servers import free_port


@pytest.fixture
def port() -> int:
    return free_port()


def job_node(port: int, number: int, num_nodes: int = 2) -> JobNode:
    return JobNode("7", number, num_nodes, "node1", "127.0.0.1", port)


def outcomes(calls: list[tuple[JobNode, dict[str, Any], Path]], min_nodes: int) -> list[str]:
    """Return the problem that each node finds, empty without one."""
    problems = ["no end"] * len(calls)

    def one(index: int) -> None:
        try:
            check_starting_nodes(*calls[index], min_nodes)
            problems[index] = ""
        except ConfigError as error:
            problems[index] = str(error)

    threads = [threading.Thread(target=one, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return problems


def test_equal_nodes_pass(port: int, tmp_path: Path) -> None:
    calls = [(job_node(port, number, 3), node(number), tmp_path) for number in (2, 1, 0)]
    assert outcomes(calls, 3) == ["", "", ""]


def test_all_nodes_report_the_same_difference(port: int, tmp_path: Path) -> None:
    versions = {"python": "3.11.7", "torch": "2.12.0"}
    calls = [
        (job_node(port, 0, 3), node(0), tmp_path),
        (job_node(port, 1, 3), node(1), tmp_path),
        (job_node(port, 2, 3), node(2, versions=versions), tmp_path),
    ]
    problems = outcomes(calls, 3)
    assert problems[0].startswith("torch is 2.13.0 on node1 and 2.12.0 on node3: ")
    assert problems == [problems[0]] * 3


def test_home_that_is_not_shared_is_refused_on_both(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "MARK_TIMEOUT_S", 0.3)
    # The mark of an earlier start of the same job proves nothing.
    mark_path(tmp_path / "own", "7").parent.mkdir(parents=True)
    mark_path(tmp_path / "own", "7").write_text('{"mark": "old"}', encoding="utf-8")
    problems = outcomes([(job_node(port, 0), node(0), tmp_path), (job_node(port, 1), node(1), tmp_path / "own")], 2)
    assert problems == [problems[0]] * 2
    assert "is not the same directory on node1 and node2" in problems[0]


@pytest.mark.parametrize(("min_nodes", "expected"), [(2, "no answer from node 1 of 2 within 0.5 s"), (1, "")])
def test_node_without_an_answer_ends_the_job_unless_fewer_are_enough(
    min_nodes: int,
    expected: str,
    port: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(preflight, "ANSWER_TIMEOUT_S", 0.5)
    (problem,) = outcomes([(job_node(port, 0), node(0), tmp_path)], min_nodes)
    assert problem.startswith(expected)
    assert bool(problem) == bool(expected)
    assert ("the job starts without" in capsys.readouterr().err) != bool(expected)


def test_unreachable_first_node_is_named(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "ANSWER_TIMEOUT_S", 0.5)
    (problem,) = outcomes([(job_node(port, 1), node(1), tmp_path)], 2)
    assert problem.startswith(f"node2 does not reach the first node, node1, at 127.0.0.1 port {port} within 0.5 s")


def test_foreign_connections_are_ignored(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "MARK_TIMEOUT_S", 0.3)
    problems: list[str] = []
    first = threading.Thread(
        target=lambda: problems.extend(outcomes([(job_node(port, 0), node(0), tmp_path)], 2)), daemon=True
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
    assert outcomes([(job_node(port, 1), node(1), tmp_path)], 2) == [""]
    first.join()
    assert problems == [""]


def test_port_in_use_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("", 0)) as server:
        (problem,) = outcomes([(job_node(server.getsockname()[1], 0), node(0), tmp_path)], 2)
    assert "node1 cannot write" in problem
    assert "in use" in problem


def test_joining_node_is_compared_with_the_first(port: int, tmp_path: Path) -> None:
    outcomes([(job_node(port, 0, 1), node(0), tmp_path)], 1)
    check_joining_node("7", node(0, host="node9"), tmp_path)
    with pytest.raises(ConfigError, match=r"torch is 2\.13\.0 on node1 and 2\.12\.0 on node9: "):
        check_joining_node("7", node(0, host="node9", versions={"python": "3.11.7", "torch": "2.12.0"}), tmp_path)
    with pytest.raises(
        ConfigError, match=r"of the first node of job 7 cannot be read on node9: all nodes need one home"
    ):
        check_joining_node("7", node(0, host="node9"), tmp_path / "own")
