"""What an agent prints and records of its node."""

import signal
import socket
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SubprocessContext

from elasticqa.elastic.agent import ElasticAgent, print_after
from elasticqa.elastic.agent_directory import AgentDirectory
from elasticqa.elastic.end_causes import recorded_causes


def test_line_is_printed_during_a_long_block(monkeypatch: pytest.MonkeyPatch) -> None:
    is_flushed = threading.Event()
    lines: list[str] = []
    monkeypatch.setattr("sys.stderr", SimpleNamespace(write=lines.append, flush=is_flushed.set))
    with print_after(0.01, "waits"):
        assert is_flushed.wait(60)
    assert "".join(lines) == "waits\n"


def test_line_is_not_printed_after_a_short_block(capsys: pytest.CaptureFixture[str]) -> None:
    with print_after(60, "waits"):
        num_threads = threading.active_count()
    assert num_threads > 1
    assert capsys.readouterr().err == ""


def test_death_of_a_worker_is_recorded_once_when_it_is_found(tmp_path: Path) -> None:
    run_dir, logs = tmp_path / "run", tmp_path / "logs"
    for directory in (run_dir, logs):
        directory.mkdir()
    agent = ElasticAgent.__new__(ElasticAgent)
    agent._directory = AgentDirectory(tmp_path)
    agent._directory.announce_attempt(run_dir, 1)
    waits = ("-c", "import threading; threading.Event().wait()")
    context = SubprocessContext(
        "workers", sys.executable, {0: waits, 1: waits}, {0: {}, 1: {}}, DefaultLogsSpecs(str(logs))
    )
    context.start()
    try:
        agent._pcontext = context
        group = SimpleNamespace(workers=[SimpleNamespace(global_rank=rank) for rank in (4, 5)], group_rank=2)
        agent._worker_group = group  # type: ignore[assignment]
        agent.call_before_closing(lambda: agent._record_ends(group))  # type: ignore[arg-type]
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
    # The agent itself stopped the other worker, which is no failure.
    (cause,) = recorded_causes(run_dir, 1)
    assert str(cause) == f"rank 5 on {socket.gethostname()} was killed by SIGKILL"
