"""What the agent and the workers of a node exchange."""

from pathlib import Path

import pytest

from elasticqa.config.environment import AGENT_DIRECTORY_VARIABLE
from elasticqa.elastic.agent_directory import AgentDirectory
from elasticqa.elastic.end_causes import EndCause


def test_agent_learns_the_attempt_of_its_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(AGENT_DIRECTORY_VARIABLE, str(tmp_path))
    agent, worker = AgentDirectory(tmp_path), AgentDirectory.from_env()
    assert worker is not None
    assert agent.announced_attempt() is None
    worker.announce_attempt(tmp_path / "RUN", 7)
    assert agent.announced_attempt() == (tmp_path / "RUN", 7)
    agent.forget_attempt()
    assert agent.announced_attempt() is None


def test_most_certain_startup_failure_of_each_rank_is_taken_once(tmp_path: Path) -> None:
    directory = AgentDirectory(tmp_path)
    silent = EndCause.now("silent", "rank 0 on a", "was stopped for 25 s")
    killed = EndCause.now("killed", "rank 1 on b", "was killed by SIGKILL")
    directory.keep_startup_failures("rank-00000", [EndCause.now("gone", "rank 1 on b", "disconnected")])
    directory.keep_startup_failures("node-00000", [EndCause.now("changed", "node 1 on b", "leaves")])
    directory.keep_startup_failures("node-00000", [silent])
    directory.keep_startup_failures("node-00000", [killed])
    assert directory.take_startup_failures() == [killed, silent]
    assert directory.take_startup_failures() == []
