"""Kills a process that writes a journal, again and again: every acknowledged line must be in the file.

Each process is an attempt of one run. It writes steps, flushes from time to time, and then sends the number of
acknowledged lines through a pipe. It gets SIGKILL after a random number of acknowledgements and a random part of a
write interval.
"""

import argparse
import json
import os
import random
import select
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from benchmarks.support.machine import machine_facts
from db.storage.run_files import journal_path
from elasticqa.run.journal import Journal, claim_attempt
from elasticqa.run.line_writer import WRITE_INTERVAL_S

_MOST_ACKNOWLEDGEMENTS = 6
_MOST_LINES = 8
"""Between two acknowledgements."""


@dataclass
class Count:
    """Counts over all kills."""

    kills: int = 0
    acknowledged_lines: int = 0
    lost_lines: int = 0
    kept_unacknowledged_lines: int = 0
    torn_last_lines: int = 0


def _write_until_killed(run: Path, attempt: int, seed: int, pipe: int) -> NoReturn:
    """Write a journal until killed."""
    chance = random.Random(seed)
    journal = Journal(run, attempt, 0)
    num_lines = 0
    while True:
        for _ in range(chance.randrange(1, _MOST_LINES + 1)):
            num_lines += 1
            journal.write("step", {"step": num_lines, "loss": chance.random(), "note": "x" * chance.randrange(200)})
        journal.flush()
        os.write(pipe, num_lines.to_bytes(4, "little"))


def _acknowledged(pipe: int, count: int) -> int:
    """Read ``count`` acknowledgements and return the last."""
    last = 0
    for _ in range(count):
        last = int.from_bytes(os.read(pipe, 4), "little")
    return last


def kill_once(run: Path, seed: int, count: Count) -> None:
    """Start a process that writes a journal, kill it, and count the lines that it left."""
    chance = random.Random(seed)
    attempt = claim_attempt(run)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _write_until_killed(run, attempt, seed, writing)
    os.close(writing)
    last = _acknowledged(reading, chance.randrange(1, _MOST_ACKNOWLEDGEMENTS + 1))
    # Kill in any phase of a write: within 10 ms, or for one process in eight within a whole write interval.
    pause = WRITE_INTERVAL_S if chance.randrange(8) == 0 else 0.01
    end = time.monotonic() + chance.random() * pause
    while (left := end - time.monotonic()) > 0:
        if select.select([reading], [], [], left)[0]:
            last = _acknowledged(reading, 1)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    # Acknowledgements that are still in the pipe count as well.
    while content := os.read(reading, 4):
        last = int.from_bytes(content, "little")
    os.close(reading)
    _count_lines(journal_path(run, attempt), last, count)


def _count_lines(path: Path, acknowledged: int, count: Count) -> None:
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    found = [json.loads(line)["step"] for line in whole.splitlines()]
    count.kills += 1
    count.acknowledged_lines += acknowledged
    count.lost_lines += len(set(range(1, acknowledged + 1)) - set(found))
    count.kept_unacknowledged_lines += len(found) - acknowledged if len(found) > acknowledged else 0
    count.torn_last_lines += len(whole) != len(content)
    assert found == list(range(1, len(found) + 1)), f"{path} misses a line or has one twice"


def main(argv: Sequence[str] | None = None) -> int:
    """Kill, print and write the counts; return 1 if an acknowledged line was lost."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults.journal_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="on the file system to test; default: that of temporary files")
    parser.add_argument("--results", type=Path)
    options = parser.parse_args(argv)
    count = Count()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for number in range(options.kills):
            kill_once(Path(folder) / "run", options.seed + number, count)
    result = {
        "measurement": "journal_kills",
        **asdict(count),
        "seconds": round(time.monotonic() - began, 1),
        **machine_facts("benchmarks.faults.journal_kills"),
    }
    print(json.dumps(result, indent=1))
    if options.results is not None:
        options.results.write_text(json.dumps([result], indent=1) + "\n", encoding="utf-8")
    return 1 if count.lost_lines else 0


if __name__ == "__main__":
    sys.exit(main())
