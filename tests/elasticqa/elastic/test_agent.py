"""What an agent says and notes of its node."""

import signal
import socket
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SubprocessContext

from elasticqa.elastic.agent import NodeAgent, said_after
from elasticqa.elastic.failures import AGENT_DIRECTORY_VARIABLE, known_departures, tell_agent


def test_long_wait_is_told_while_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    told = threading.Event()
    lines: list[str] = []

    class Terminal:
        def write(self, text: str) -> None:
            lines.append(text)

        def flush(self) -> None:
            told.set()

    monkeypatch.setattr("sys.stderr", Terminal())
    with said_after(0.01, "waits"):
        assert told.wait(60)
    assert "".join(lines) == "waits\n"


def test_short_wait_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    with said_after(60, "waits"):
        num_threads = threading.active_count()
    assert num_threads > 1
    assert capsys.readouterr().err == ""


def test_death_is_noted_once_by_the_look_that_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, run = tmp_path / "agent", tmp_path / "run"
    for directory in (folder, run, tmp_path / "logs"):
        directory.mkdir()
    monkeypatch.setenv(AGENT_DIRECTORY_VARIABLE, str(folder))
    tell_agent(run, 1)
    waits = ("-c", "import threading; threading.Event().wait()")
    context = SubprocessContext(
        "workers", sys.executable, {0: waits, 1: waits}, {0: {}, 1: {}}, DefaultLogsSpecs(str(tmp_path / "logs"))
    )
    context.start()
    try:
        agent = NodeAgent.__new__(NodeAgent)
        agent._folder, agent._pcontext = folder, context
        group = SimpleNamespace(workers=[SimpleNamespace(global_rank=rank) for rank in (4, 5)], group_rank=2)
        agent._worker_group = group  # type: ignore[assignment]
        agent._note_before_closing(context, group)  # type: ignore[arg-type]
        assert context.wait(0) is None
        killed = context.subprocess_handlers[1].proc
        killed.kill()
        killed.wait()
        ended = context.wait(0)
        assert ended is not None
        assert ended.is_failed()
        context.close()
    finally:
        context.close(signal.SIGKILL)
    # The other was ended by the agent, which is no loss.
    assert [str(item) for item in known_departures(run, 1)] == [
        f"rank 5 on {socket.gethostname()} was killed by SIGKILL"
    ]
