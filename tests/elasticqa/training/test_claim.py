"""An attempt claims its number, holds its run, and says in its first and last line what it was."""

import json
import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elasticqa.config.environment import RUN_ID_VARIABLE
from elasticqa.config.train_config import TrainConfig
from elasticqa.distributed.topology import Topology
from elasticqa.errors import ConfigError
from elasticqa.run.attempt import write_end
from elasticqa.run.home import hold
from elasticqa.run.journal import Journal
from elasticqa.run.oom_records import OutOfMemoryRecord, write_oom_record
from elasticqa.training.claim import start_attempt
from tests.support.ranks import run_on_ranks
from tests.support.training import journal

CONFIG = TrainConfig(name="mine")
ALONE = Topology.from_env({})


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ELASTICQA_HOME", str(tmp_path))
    monkeypatch.setenv(RUN_ID_VARIABLE, "RUN")
    return tmp_path / "runs"


def attempt_of_a_process(status: str | None = None, topology: Topology = ALONE, **end: Any) -> int:
    """Begin an attempt, end it with a status or like a crash, and return its number."""
    with ExitStack() as stack:
        attempt = start_attempt(CONFIG, topology, stack, {}, 100)
        if status is not None:
            write_end(attempt, status, "why", **end)
    return attempt.number


def test_first_and_last_line_say_what_an_attempt_was(runs: Path) -> None:
    with ExitStack() as stack:
        attempt = start_attempt(CONFIG, ALONE, stack, {}, 100)
        fields = write_end(attempt, "finished", "trained", step=7)
        lines = journal(runs / "RUN")  # on the disk before the journal is closed
    first, end = lines["attempt"][0], lines["end"][0]
    assert (first["n"], first["run_id"], first["attempt"], first["schema_version"]) == (1, "RUN", 1, 1)
    assert (first["provenance"], first["name"], first["node_rank"]) == ("measured", "mine", 0)
    assert first["config"] == CONFIG.to_dict()
    assert first["pid"] == os.getpid()
    assert first["started_at"] <= first["t"]
    assert lines["hosts"][0]["hosts"] == [first["host"]]
    assert {name: end[name] for name in fields} == fields
    assert (fields["status"], fields["reason"], fields["step"], fields["is_fatal"]) == ("finished", "trained", 7, False)
    assert fields["wall_clock_s"] == pytest.approx(end["t"] - first["started_at"], abs=1)


def test_only_node_0_writes_the_end_of_an_attempt(runs: Path) -> None:
    with ExitStack() as stack:
        attempt = start_attempt(CONFIG, ALONE, stack, {}, 100)
        with Journal(attempt.directory, 1, node_rank=1) as other:
            other.write("system", {"node_rank": 1})
            write_end(replace(attempt, is_main=False, journal=other), "finished", "trained")
            kinds = [json.loads(line)["kind"] for line in other.path.read_text(encoding="utf-8").splitlines()]
    assert kinds == ["system"]


def test_attempts_of_a_run_are_numbered(runs: Path) -> None:
    assert [attempt_of_a_process() for _ in range(3)] == [1, 2, 3]
    assert journal(runs / "RUN", 3)["attempt"][0]["attempt"] == 3


def test_only_the_first_attempt_of_a_start_by_the_scheduler_has_waited(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    for submitted_at, started_at in ((100, 160), (100, 160), (200, 260)):
        monkeypatch.setenv("SLURM_JOB_SUBMIT_TIME", str(submitted_at))
        monkeypatch.setenv("SLURM_JOB_START_TIME", str(started_at))
        attempt_of_a_process()
    facts = [journal(runs / "RUN", number)["attempt"][0]["scheduler"] for number in (1, 2, 3)]
    assert [fact["submitted_at"] for fact in facts] == [100, None, 200]
    assert [fact["started_at"] for fact in facts] == [160, 160, 260]


def test_run_is_held_while_an_attempt_lives(runs: Path) -> None:
    with ExitStack() as stack:
        start_attempt(CONFIG, ALONE, stack, {}, 100)
        with pytest.raises(ConfigError, match=r"run RUN is being trained by another process.*--resume none"):
            attempt_of_a_process()
    with hold(runs / "RUN") as is_mine:
        assert is_mine


@pytest.mark.usefixtures("runs")
def test_fatal_end_is_not_tried_again_by_a_restart() -> None:
    attempt_of_a_process("failed", is_fatal=True)
    with pytest.raises(ConfigError, match="run RUN is not restarted: why"):
        attempt_of_a_process(topology=replace(ALONE, restart_count=1))
    assert attempt_of_a_process() == 2


@pytest.mark.usefixtures("runs")
def test_other_ends_are_tried_again_by_a_restart() -> None:
    attempt_of_a_process("failed")
    assert attempt_of_a_process(topology=replace(ALONE, restart_count=1)) == 2


def test_micro_batches_are_halved_after_a_shortage_until_none_is_left(runs: Path) -> None:
    attempt_of_a_process("failed")
    write_oom_record(runs / "RUN", 3, OutOfMemoryRecord(1, 4, 7, "a micro-batch of 7 features does not fit"))
    again = replace(ALONE, restart_count=1)
    with ExitStack() as stack:
        assert start_attempt(CONFIG, again, stack, {}, 100).micro_batch_size == 4
    write_oom_record(runs / "RUN", 3, OutOfMemoryRecord(2, 4, 1, "a micro-batch of 1 features does not fit"))
    with pytest.raises(ConfigError, match="run RUN is not restarted: a micro-batch of 1 features does not fit; use "):
        attempt_of_a_process(topology=again)
    # Whoever starts it anew may have made room.
    assert attempt_of_a_process() == 3


def test_run_directory_that_cannot_be_made_is_one_line(runs: Path) -> None:
    runs.write_text("", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"RUN cannot be written.*ELASTICQA_HOME") as caught:
        attempt_of_a_process()
    assert "\n" not in str(caught.value)


def begin_on_a_rank(topology: Topology, home: str) -> tuple[str, int, bool]:
    os.environ["ELASTICQA_HOME"] = home
    os.environ[RUN_ID_VARIABLE] = f"RUN-{topology.rank}"
    with ExitStack() as stack:
        attempt = start_attempt(CONFIG, topology, stack, {}, 100)
        attempt.feature_log.write(1, [topology.rank])
        topology.barrier()
    return attempt.run_id, attempt.number, attempt.journal is not None


@pytest.mark.slow
def test_ranks_share_the_run_of_the_main_rank_and_one_of_a_node_writes_its_journal(tmp_path: Path) -> None:
    assert run_on_ranks(2, begin_on_a_rank, str(tmp_path)) == [("RUN-0", 1, True), ("RUN-0", 1, False)]
    directory = tmp_path / "runs" / "RUN-0"
    assert [path.name for path in directory.parent.iterdir()] == ["RUN-0"]
    assert len(journal(directory)["hosts"][0]["hosts"]) == 1
    fed = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((directory / "fed").iterdir())]
    assert fed == [{"step": 1, "ids": [0]}, {"step": 1, "ids": [1]}]


def begin_held(topology: Topology, home: str) -> str:
    os.environ["ELASTICQA_HOME"] = home
    os.environ[RUN_ID_VARIABLE] = "RUN"
    with ExitStack() as stack:
        try:
            start_attempt(CONFIG, topology, stack, {}, 100)
        except ConfigError as error:
            return str(error)
    return "began"


@pytest.mark.slow
def test_run_held_by_another_is_refused_on_every_rank(tmp_path: Path) -> None:
    (tmp_path / "runs" / "RUN").mkdir(parents=True)
    with hold(tmp_path / "runs" / "RUN"):
        messages = run_on_ranks(2, begin_held, str(tmp_path))
    assert all("is being trained by another process" in message for message in messages)
    assert len(messages) == 2
