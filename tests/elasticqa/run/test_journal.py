import json
import math
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticqa.errors import JournalError
from elasticqa.run.journal import FeatureLog, Journal, claim_attempt
from tests.support.paths import REPOSITORY

# Writes lines without end; prints the number of the last line after each flush that returned.
WRITER = """
import sys
from pathlib import Path
from elasticqa.run.journal import Journal
with Journal(Path(sys.argv[1]), 1, 0) as journal:
    count = 0
    while True:
        for _ in range(25):
            count += 1
            journal.write("step", {"step": count, "loss": count / 3})
        journal.flush()
        print(count, flush=True)
"""


def read_lines(path: Path) -> list[dict[str, Any]]:
    text = path.read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


@contextmanager
def largest_file(num_bytes: int) -> Iterator[None]:
    """Limit files of this process to `num_bytes`, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_write_numbers_and_stamps_lines_in_order(tmp_path: Path) -> None:
    with Journal(tmp_path, attempt=2, node_rank=1) as journal:
        journal.write("attempt", {"schema_version": 1})
        journal.write("step", {"step": 1, "loss": 0.5})
    assert journal.path == tmp_path / "journal" / "attempt-0002-node-00001.jsonl"
    lines = read_lines(journal.path)
    assert [(line["n"], line["kind"]) for line in lines] == [(1, "attempt"), (2, "step")]
    assert lines[1]["loss"] == 0.5
    assert lines[0]["t"] <= lines[1]["t"]


def test_write_copies_the_fields(tmp_path: Path) -> None:
    fields = {"step": 1}
    with Journal(tmp_path, 1, 0) as journal:
        journal.write("step", fields)
        fields["step"] = 2
    assert read_lines(journal.path)[0]["step"] == 1


def test_write_from_many_threads_keeps_every_line(tmp_path: Path) -> None:
    with Journal(tmp_path, 1, 0) as journal:

        def write(thread: int) -> None:
            for item in range(200):
                journal.write("event", {"thread": thread, "item": item})

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for writer in threads:
            writer.start()
        for writer in threads:
            writer.join()
    lines = read_lines(journal.path)
    assert [line["n"] for line in lines] == list(range(1, 801))
    for thread in range(4):
        assert [line["item"] for line in lines if line["thread"] == thread] == list(range(200))


def test_nan_and_infinity_become_null(tmp_path: Path) -> None:
    with Journal(tmp_path, 1, 0) as journal:
        journal.write("step", {"loss": math.nan, "deep": [{"x": math.inf}, (1.5, -math.inf)]})
        journal.write("step", {"array": np.array([1.0, np.nan]), "scalar": np.float32(0.5), "path": Path("a")})
    first, second = read_lines(journal.path)
    assert first["loss"] is None
    assert first["deep"] == [{"x": None}, [1.5, None]]
    assert (second["array"], second["scalar"], second["path"]) == ([1.0, None], 0.5, "a")


def test_write_refuses_fields_of_the_journal(tmp_path: Path) -> None:
    with Journal(tmp_path, 1, 0) as journal, pytest.raises(ValueError, match="sets n, t and kind"):
        journal.write("step", {"n": 7})


def test_write_after_close_is_refused(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 1, 0)
    journal.close()
    journal.close()
    with pytest.raises(JournalError, match="is closed"):
        journal.write("step", {})


def test_second_journal_of_an_attempt_is_refused(tmp_path: Path) -> None:
    with Journal(tmp_path, 1, 0), pytest.raises(FileExistsError):
        Journal(tmp_path, 1, 0)


def test_value_that_is_not_json_is_an_error_and_loses_one_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 1, 0)
    journal.write("event", {"data": object()})
    journal.write("event", {"data": {}})
    with pytest.raises(JournalError, match="not JSON"):
        journal.flush()
    with pytest.raises(JournalError, match="not JSON"):
        journal.close()
    assert [line["n"] for line in read_lines(journal.path)] == [1]


def test_full_disk_is_an_error_until_there_is_room(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 1, 0)
    with largest_file(1000):
        for step in range(100):
            journal.write("step", {"step": step})
        with pytest.raises(JournalError, match="cannot be written"):
            journal.flush()
        assert journal.error is not None
        assert journal.path.stat().st_size == 1000
    journal.flush()
    assert journal.error is None
    journal.close()
    assert [line["step"] for line in read_lines(journal.path)] == list(range(100))


def test_close_on_a_full_disk_raises(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 1, 0)
    with largest_file(10):
        journal.write("step", {"step": 1})
        with pytest.raises(JournalError, match="cannot be written"):
            journal.close()


def test_lines_reach_the_disk_without_a_flush(tmp_path: Path) -> None:
    with Journal(tmp_path, 1, 0) as journal:
        journal.write("step", {"step": 1})
        watch = threading.Event()
        for _ in range(1000):
            if journal.path.stat().st_size:
                break
            watch.wait(0.01)
        assert read_lines(journal.path)[0]["step"] == 1


def test_kill_loses_no_flushed_line_and_tears_only_the_last(tmp_path: Path) -> None:
    for kill in range(20):
        folder = tmp_path / str(kill)
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
        )
        assert process.stdout is not None
        acknowledged = 0
        for _ in range(1 + kill % 4):
            acknowledged = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        acknowledged = int(([str(acknowledged), *process.stdout.read().split()])[-1])
        process.wait()
        process.stdout.close()
        whole, _, torn = (folder / "journal/attempt-0001-node-00000.jsonl").read_text().rpartition("\n")
        lines = [json.loads(line) for line in whole.splitlines()]
        assert [line["n"] for line in lines] == list(range(1, len(lines) + 1))
        assert len(lines) >= acknowledged > 0
        assert "\n" not in torn


def test_claimed_attempts_count_from_one_and_skip_journals(tmp_path: Path) -> None:
    assert claim_attempt(tmp_path) == 1
    assert claim_attempt(tmp_path) == 2
    Journal(tmp_path, 7, 3).close()
    assert claim_attempt(tmp_path) == 8


def test_claim_attempt_gives_each_process_its_own_number(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from elasticqa.run.journal import claim_attempt\n"
        "print(*[claim_attempt(Path(sys.argv[1])) for _ in range(20)])"
    )
    root = REPOSITORY
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=root)
        for _ in range(3)
    ]
    numbers = [int(word) for process in processes for word in process.communicate()[0].split()]
    assert sorted(numbers) == list(range(1, 61))


def test_feature_log_writes_arrays_as_numbers(tmp_path: Path) -> None:
    log = FeatureLog(tmp_path, attempt=1, rank=3)
    log.write(1, [4, 2])
    log.write(2, np.array([7, 5], dtype=np.int32))  # type: ignore[arg-type]
    log.flush()
    log.close()
    assert log.path == tmp_path / "fed" / "attempt-0001-rank-00003.jsonl"
    assert read_lines(log.path) == [{"step": 1, "ids": [4, 2]}, {"step": 2, "ids": [7, 5]}]
