"""Values of environment variables."""

from pathlib import Path

import pytest

from elasticqa.config.environment import DEFAULT_PEER_TIMEOUT_S, agent_directory, agent_pid, peer_timeout_s
from elasticqa.errors import ConfigError
from tests.support.paths import REPOSITORY


@pytest.mark.parametrize("text", ["", "0", "4", "-5", "1.5", "soon", "²"])
def test_peer_timeout_that_is_not_a_number_of_seconds_in_its_range_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="ELASTICQA_PEER_TIMEOUT_S="):
        peer_timeout_s({"ELASTICQA_PEER_TIMEOUT_S": text})


def test_peer_timeout_is_the_value_or_the_default() -> None:
    assert peer_timeout_s({"ELASTICQA_PEER_TIMEOUT_S": "7"}) == 7
    assert peer_timeout_s({}) == DEFAULT_PEER_TIMEOUT_S


def test_worker_without_an_agent_has_neither_its_directory_nor_its_pid(tmp_path: Path) -> None:
    assert (agent_directory({}), agent_pid({})) == (None, None)
    assert agent_directory({"ELASTICQA_AGENT_DIRECTORY": str(tmp_path / "absent")}) is None
    environ = {"ELASTICQA_AGENT_DIRECTORY": str(tmp_path), "ELASTICQA_AGENT_PID": "7"}
    assert (agent_directory(environ), agent_pid(environ)) == (tmp_path, 7)


def test_environment_is_read_in_config_and_distributed_only() -> None:
    core = REPOSITORY / "elasticqa"
    reading = (
        path.relative_to(core) for path in core.rglob("*.py") if "os.environ" in path.read_text(encoding="utf-8")
    )
    assert {path.parts[0] for path in reading} == {"config", "distributed"}
