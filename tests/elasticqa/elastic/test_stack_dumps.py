"""Stack dumps of a rank in its run directory."""

import signal
import sys
import threading
from pathlib import Path

from elasticqa.elastic.stack_dumps import STACK_DUMP_SIGNAL, StackDumpFile, main_thread_position
from tests.support.processes import piped

WAITS = """
import sys, threading
from pathlib import Path
from elasticqa.elastic.stack_dumps import StackDumpFile
stacks = StackDumpFile(Path(sys.argv[1]), 2, 3)
print("ready", flush=True)
threading.Event().wait()
"""


def test_stacks_and_errors_are_kept_and_an_empty_file_is_removed(tmp_path: Path) -> None:
    stacks = StackDumpFile(tmp_path, 1, 0)
    stacks.dump("rank 1 on b disconnected")
    try:
        raise ValueError("too\nmuch")
    except ValueError as error:
        stacks.add_error("rank 0 on a failed", error)
    stacks.close()
    text = (tmp_path / stacks.name).read_text()
    assert "rank 1 on b disconnected" in text
    assert "test_stacks_and_errors_are_kept" in text
    assert "ValueError: too\nmuch" in text
    StackDumpFile(tmp_path, 2, 0).close()
    assert [path.name for path in (tmp_path / "stacks").iterdir()] == ["attempt-0001-rank-00000.txt"]


def test_full_disk_raises_no_error(tmp_path: Path) -> None:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / "attempt-0001-rank-00000.txt").symlink_to("/dev/full")
    stacks = StackDumpFile(tmp_path, 1, 0)
    stacks.dump("rank 1 on b disconnected")
    stacks.add_error("rank 0 on a failed", ValueError("x"))
    stacks.close()


def test_signal_dumps_the_stacks_and_ends_the_process(tmp_path: Path) -> None:
    with piped(sys.executable, "-c", WAITS, tmp_path) as (process, output):
        assert output.readline() == "ready\n"
        process.send_signal(STACK_DUMP_SIGNAL)
        assert process.wait(60) == -signal.SIGUSR2
    kept = (tmp_path / "stacks" / "attempt-0002-rank-00003.txt").read_text()
    assert "most recent call first" in kept
    assert "in <module>" in kept


def test_main_thread_position_changes_only_when_the_thread_proceeds() -> None:
    seen: list[tuple[object, str]] = []
    asked, answered = threading.Event(), threading.Event()

    def look() -> None:
        for _ in range(2):
            asked.wait(60)
            seen.extend(main_thread_position() for _ in range(2))
            asked.clear()
            answered.set()

    thread = threading.Thread(target=look)
    thread.start()
    asked.set()
    answered.wait(60)
    answered.clear()
    asked.set()
    thread.join()
    assert seen[0] == seen[1]
    assert seen[2] == seen[3]
    assert seen[0][0] != seen[2][0]
