"""Why attempts end: exit codes of workers, causes recorded by several processes, and the missing end of a journal."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from elasticqa.elastic.end_causes import (
    EndCause,
    cause_of_exit,
    is_refusal,
    membership_changes,
    record_causes,
    recorded_causes,
    write_missing_end,
)
from elasticqa.elastic.stack_dumps import STACK_DUMP_SIGNAL
from elasticqa.errors import ExitCode

GONE = EndCause.now("gone", "rank 1 on b", "disconnected")
KILLED = EndCause.now("killed", "rank 1 on b", "was killed by SIGKILL")
LEAVES = EndCause.now("changed", "node 1 on b", "leaves")


@pytest.mark.parametrize(
    ("code", "kind", "what"),
    [
        (-signal.SIGKILL, "killed", "was killed by SIGKILL"),
        (-signal.SIGSEGV, "killed", "was killed by SIGSEGV"),
        (-63, "killed", "was killed by signal 63"),
        (-STACK_DUMP_SIGNAL, "gone", "was sent SIGUSR2 to dump its stacks"),
        (3, "ended", "ended with status 3"),
    ],
)
def test_exit_code_of_a_worker_names_rank_host_and_cause(code: int, kind: str, what: str) -> None:
    cause = cause_of_exit(4, "host-b", code)
    assert cause is not None
    assert (cause.kind, str(cause)) == (kind, f"rank 4 on host-b {what}")


@pytest.mark.parametrize("code", [ExitCode.PEER_LOST, ExitCode.STOPPED])
def test_worker_that_ends_because_of_another_is_no_cause(code: int) -> None:
    assert cause_of_exit(4, "host-b", code) is None


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ({2}, True),
        ({2, ExitCode.PEER_LOST}, True),
        ({2, -STACK_DUMP_SIGNAL}, True),
        ({2, -signal.SIGTERM, ExitCode.STOPPED}, True),
        ({2, 1}, False),
        ({2, -signal.SIGKILL}, False),
        ({ExitCode.PEER_LOST}, False),
        (set(), False),
    ],
)
def test_request_is_refused_unless_a_worker_failed_otherwise(codes: set[int], expected: bool) -> None:
    assert is_refusal(codes) is expected


def test_most_certain_cause_of_all_writers_comes_first(tmp_path: Path) -> None:
    record_causes(tmp_path, 1, "rank-00000", [GONE])
    record_causes(tmp_path, 1, "node-00001", [LEAVES])
    record_causes(tmp_path, 1, "node-00001", [KILLED])
    record_causes(tmp_path, 2, "rank-00000", [EndCause.now("failed", "rank 0 on a", "failed: x")])
    assert [cause.kind for cause in recorded_causes(tmp_path, 1)] == ["killed", "gone", "changed"]


def test_records_that_cannot_be_read_or_written_are_ignored(tmp_path: Path) -> None:
    record_causes(tmp_path, 1, "rank-00000", [GONE])
    (tmp_path / "departures" / "attempt-0001-rank-00001.json").write_text('[{"kind": "odd"}]', encoding="utf-8")
    (tmp_path / "departures" / "attempt-0001-rank-00002.json").write_text("[", encoding="utf-8")
    assert recorded_causes(tmp_path, 1) == [GONE]
    record_causes(tmp_path / "nowhere", 1, "rank-00000", [GONE])
    assert recorded_causes(tmp_path / "nowhere", 1) == []


def test_membership_changes_name_the_nodes_that_leave_unless_all_do(tmp_path: Path) -> None:
    record_causes(tmp_path, 1, "node-00001", [LEAVES, GONE])
    assert membership_changes(tmp_path, 1, num_nodes=2) == ": node 1 on b leaves"
    record_causes(tmp_path, 1, "node-00000", [EndCause.now("changed", "node 0 on a", "leaves")])
    assert membership_changes(tmp_path, 1, num_nodes=2) == ""


def write_journal(run_dir: Path, tail: str = "") -> Path:
    path = run_dir / "journal" / "attempt-0001-node-00000.jsonl"
    path.parent.mkdir()
    lines: list[dict[str, Any]] = [{"n": 1, "t": 5.0, "kind": "attempt"}, {"n": 2, "t": 9.5, "kind": "step", "step": 1}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + tail, encoding="utf-8")
    return path


@pytest.mark.parametrize(("tail", "number"), [("", 3), ('{"n": 3, "t": 9.', 4)])
def test_missing_end_gets_the_cause_and_the_time_of_the_last_line(tail: str, number: int, tmp_path: Path) -> None:
    path = write_journal(tmp_path, tail)
    before = path.read_bytes()
    record_causes(tmp_path, 1, "rank-00000", [GONE])
    record_causes(tmp_path, 1, "node-00001", [KILLED])
    write_missing_end(tmp_path, 1)
    write_missing_end(tmp_path, 1)
    assert path.read_bytes().startswith(before)
    *_, last = path.read_text(encoding="utf-8").splitlines()
    assert json.loads(last) == {
        "n": number, "t": 9.5, "kind": "end", "status": "failed", "reason": "rank 1 on b was killed by SIGKILL",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("tail", "cause"), [('{"n": 3, "t": 9.9, "kind": "end", "status": "preempted"}\n', KILLED), ("", LEAVES)]
)
def test_end_is_not_added_beside_another_or_without_a_failure(tail: str, cause: EndCause, tmp_path: Path) -> None:
    path = write_journal(tmp_path, tail)
    before = path.read_bytes()
    record_causes(tmp_path, 1, "node-00001", [cause])
    write_missing_end(tmp_path, 1)
    write_missing_end(tmp_path, 2)
    assert path.read_bytes() == before
