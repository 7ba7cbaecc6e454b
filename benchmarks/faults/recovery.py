"""Time from the SIGKILL of a worker to the next step, and the share of useful work at one kill per minute.

A job of two nodes with one worker each, a new interpreter for every process, and a tiny model, so that the recovery is
measured and not the computation. A step counts once its line is in the journal's file.

Useful work is the time of the steps of a window divided by its length; of redone steps only the last time counts. The
share at one kill in ten minutes is computed from recoveries and redone steps.
"""

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.support.machine import machine_facts
from benchmarks.support.small_run import write_data, write_model
from db.storage.run_files import main_journals
from tests.chaos.job import ChaosJob, kill
from tests.chaos.processes import ExecutedStarter
from tests.support.processes import until
from tests.support.training import journal

CHECKPOINT_EVERY = 50
_TAIL_BYTES = 1 << 13
_STEP_LINE = re.compile(rb'"kind":"step","step":(\d+)[^\n]*\n')
_STEPS_BETWEEN = 20
"""Minimum steps of an attempt before the next kill."""


class WorkerKiller:
    """Kills workers of a job and measures the recovery."""

    def __init__(self, job: ChaosJob) -> None:
        self._job = job
        self._turn = 0

    def newest(self) -> tuple[int, int]:
        """Return the newest attempt with a step in its journal, and its last step."""
        for path in reversed(main_journals(self._job.directory)):
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
                steps = _STEP_LINE.findall(file.read())
            if steps:
                return int(path.name.split("-")[1]), int(steps[-1])
        return 0, 0

    def train(self, count: int) -> None:
        """Wait until the newest attempt has done ``count`` more steps."""
        attempt, first = self.newest()
        until(lambda: self.newest()[0] > attempt or self.newest()[1] >= first + count, f"{count} steps")

    def kill(self) -> dict[str, float]:
        """Kill a worker, alternating between the two nodes; return the cost.

        Returns:
            ``recovery_s`` until the next step is acknowledged, and ``redone_steps``.
        """
        node = self._job.live()[self._turn % 2]
        self._turn += 1
        attempt, step = self.newest()
        began = time.monotonic()
        kill(self._job.workers(node)[0].pid)
        until(lambda: self.newest()[0] > attempt, f"a step after the kill\n{self._job.output()}")
        seconds = time.monotonic() - began
        setup = journal(self._job.directory, self.newest()[0])["setup"][0]
        # Steps whose line was not yet in the file are not counted.
        return {"recovery_s": round(seconds, 2), "redone_steps": step - setup["start_step"]}


def seconds_per_step(job: ChaosJob) -> float:
    """Return the seconds per step of the first attempt, with saves, without its first five steps."""
    steps = journal(job.directory, 1)["step"][5:]
    return float(steps[-1]["t"] - steps[0]["t"]) / (len(steps) - 1)


def useful_s(job: ChaosJob, began_at: float) -> float:
    """Return the seconds of useful steps since a Unix time; of redone steps the newest attempt counts.

    A step's time runs from the previous line to its own, with saves; an attempt's first step has its recorded time.
    """
    seconds: dict[int, float] = {}
    for path in main_journals(job.directory):
        before = None
        for line in journal(job.directory, int(path.name.split("-")[1]))["step"]:
            took = line["step_time_s"] if before is None else line["t"] - before
            before = line["t"]
            seconds[line["step"]] = took if line["t"] >= began_at else 0.0
    return sum(seconds.values())


def useful_share(job: ChaosJob, killer: WorkerKiller, num_minutes: int) -> dict[str, Any]:
    """Return the share of useful work over some minutes with one kill in each."""
    began, began_at = time.monotonic(), time.time()
    costs = []
    for minute in range(num_minutes):
        _wait_until(began + 60 * (minute + 0.5))
        costs.append(killer.kill())
        _wait_until(began + 60 * (minute + 1))
    window_s = time.monotonic() - began
    return {
        "useful_share": round(useful_s(job, began_at) / window_s, 4),
        "window_s": round(window_s, 1),
        "kills": costs,
    }


def _wait_until(end: float) -> None:
    until(lambda: time.monotonic() >= end, "the next minute")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print and write the result."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults.recovery", description=__doc__)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument(
        "--minutes", type=int, default=2, help="minutes with a kill in each, for the share of useful work"
    )
    parser.add_argument("--results", type=Path)
    options = parser.parse_args(argv)
    facts = machine_facts("benchmarks.faults.recovery")
    starter = ExecutedStarter()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        home.mkdir()
        flags = [
            "--recipe=demo", f"--model={write_model(Path(folder) / 'model')}",
            f"--dataset={write_data(Path(folder) / 'data')}", "--max-length=160", "--doc-stride=32",
            "--global-batch-size=7", "--micro-batch-size=4", "--epochs=100000", "--log-every-s=1", "--no-eval-before",
            f"--checkpoint-every-steps={CHECKPOINT_EVERY}",
        ]  # fmt: skip
        job = ChaosJob(starter, home, "2:2", flags)
        killer = WorkerKiller(job)
        try:
            job.start_nodes(2)
            until(lambda: killer.newest()[1] >= 4 * CHECKPOINT_EVERY, "the first steps")
            step_s = seconds_per_step(job)
            costs = []
            for _ in range(options.kills):
                costs.append(killer.kill())
                killer.train(_STEPS_BETWEEN)
            share = useful_share(job, killer, options.minutes) if options.minutes else {}
        finally:
            starter.close()
    seconds = [each["recovery_s"] for each in costs + share.get("kills", [])]
    lost_s = median([each["recovery_s"] + each["redone_steps"] * step_s for each in costs])
    result = {
        "measurement": "recovery",
        "workers": 2,
        "recovery_s": seconds,
        "median_recovery_s": median(seconds),
        "step_s": round(step_s, 4),
        "checkpoint_every_steps": CHECKPOINT_EVERY,
        "costs": costs,
        "a_kill_a_minute": share,
        "computed_useful_share_at_one_kill_in_ten_minutes": round(1 - lost_s / 600, 4),
        "load_average_at_the_end": machine_facts("")["load_average"],
        **facts,
    }
    print(json.dumps(result, indent=1))
    if options.results is not None:
        options.results.write_text(json.dumps([result], indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
