"""Who left and why, kept by several processes, and the end of an attempt that could not write its own."""

import json
from pathlib import Path
from typing import Any

import pytest

from elasticqa.elastic.failures import (
    AGENT_DIRECTORY_VARIABLE,
    attempt_of_workers,
    changes,
    departure,
    end_attempt,
    forget_attempt,
    keep_news,
    known_departures,
    note,
    take_news,
    tell_agent,
)

GONE = departure("gone", "rank 1 on b", "went away")
KILLED = departure("killed", "rank 1 on b", "was killed by SIGKILL")


def journal(directory: Path, tail: str = "") -> Path:
    path = directory / "journal" / "attempt-0001-node-00000.jsonl"
    path.parent.mkdir()
    lines: list[dict[str, Any]] = [{"n": 1, "t": 5.0, "kind": "attempt"}, {"n": 2, "t": 9.5, "kind": "step", "step": 1}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + tail, encoding="utf-8")
    return path


def test_surest_cause_comes_first_whoever_notes_it(tmp_path: Path) -> None:
    note(tmp_path, 1, "rank-00000", [GONE])
    note(tmp_path, 1, "node-00001", [departure("changed", "node 1 on b", "leaves")])
    note(tmp_path, 1, "node-00001", [KILLED])
    note(tmp_path, 2, "rank-00000", [departure("failed", "rank 0 on a", "failed: x")])
    assert [item.kind for item in known_departures(tmp_path, 1)] == ["killed", "gone", "changed"]


def test_notes_that_cannot_be_read_or_written_are_left_out(tmp_path: Path) -> None:
    note(tmp_path, 1, "rank-00000", [GONE])
    (tmp_path / "departures" / "attempt-0001-rank-00001.json").write_text('[{"kind": "odd"}]', encoding="utf-8")
    (tmp_path / "departures" / "attempt-0001-rank-00002.json").write_text("[", encoding="utf-8")
    assert known_departures(tmp_path, 1) == [GONE]
    note(tmp_path / "nowhere", 1, "rank-00000", [GONE])
    assert known_departures(tmp_path / "nowhere", 1) == []


def test_changes_tell_who_leaves_unless_all_do(tmp_path: Path) -> None:
    note(tmp_path, 1, "node-00001", [departure("changed", "node 1 on b", "leaves"), GONE])
    assert changes(tmp_path, 1, num_nodes=2) == ": node 1 on b leaves"
    note(tmp_path, 1, "node-00000", [departure("changed", "node 0 on a", "leaves")])
    assert changes(tmp_path, 1, num_nodes=2) == ""


@pytest.mark.parametrize(("tail", "number"), [("", 3), ('{"n": 3, "t": 9.', 4)])
def test_end_is_added_with_the_cause_and_the_time_of_the_last_line(tail: str, number: int, tmp_path: Path) -> None:
    path = journal(tmp_path, tail)
    before = path.read_bytes()
    note(tmp_path, 1, "rank-00000", [GONE])
    note(tmp_path, 1, "node-00001", [KILLED])
    end_attempt(tmp_path, 1)
    end_attempt(tmp_path, 1)
    assert path.read_bytes().startswith(before)
    *_, last = path.read_text(encoding="utf-8").splitlines()
    assert json.loads(last) == {
        "n": number, "t": 9.5, "kind": "end", "status": "failed", "reason": "rank 1 on b was killed by SIGKILL",
    }  # fmt: skip


def test_end_is_not_added_without_a_cause_or_beside_another(tmp_path: Path) -> None:
    path = journal(tmp_path, '{"n": 3, "t": 9.9, "kind": "end", "status": "preempted"}\n')
    before = path.read_bytes()
    note(tmp_path, 1, "node-00001", [KILLED])
    end_attempt(tmp_path, 1)
    end_attempt(tmp_path, 2)
    assert path.read_bytes() == before


def test_attempt_of_a_node_without_a_cause_stays_open(tmp_path: Path) -> None:
    path = journal(tmp_path)
    before = path.read_bytes()
    note(tmp_path, 1, "node-00001", [departure("changed", "node 1 on b", "leaves")])
    end_attempt(tmp_path, 1)
    assert path.read_bytes() == before


def test_agent_learns_the_attempt_of_its_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(AGENT_DIRECTORY_VARIABLE, str(tmp_path))
    assert attempt_of_workers(tmp_path) is None
    tell_agent(tmp_path / "RUN", 7)
    assert attempt_of_workers(tmp_path) == (tmp_path / "RUN", 7)
    forget_attempt(tmp_path)
    assert attempt_of_workers(tmp_path) is None


def test_news_of_a_start_are_taken_once_and_of_each_the_surest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(AGENT_DIRECTORY_VARIABLE, str(tmp_path))
    silent = departure("silent", "rank 0 on a", "was stopped for 25 s")
    keep_news(tmp_path, "rank-00000", [GONE])
    keep_news(tmp_path, "node-00000", [departure("changed", "node 1 on b", "leaves")])
    keep_news(tmp_path, "node-00000", [silent])
    keep_news(tmp_path, "node-00000", [KILLED])
    assert take_news() == [KILLED, silent]
    assert take_news() == []


def test_worker_without_an_agent_has_no_news(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(AGENT_DIRECTORY_VARIABLE, raising=False)
    assert take_news() == []
    monkeypatch.setenv(AGENT_DIRECTORY_VARIABLE, str(tmp_path / "gone"))
    assert take_news() == []
