"""Hundreds of real runs under random faults drawn from seeds; prints and writes a table of the results.

Each schedule is a job of real agents and workers on this machine that must end like the uninterrupted run
(tests/chaos/check.py compares them). Without `--execute`, processes start with their imports done, so recovery times do
not include the start of the interpreter; those of benchmarks/faults/recovery.py do.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.support.machine import machine_facts
from benchmarks.support.small_run import write_data, write_model
from benchmarks.tables.faults import chaos_table
from tests.chaos.schedule import draw
from tests.chaos.schedule_runner import ScheduleRunner


def run_one(runner: ScheduleRunner, seed: int) -> dict[str, Any]:
    """Return the result of the schedule of a seed."""
    schedule = draw(seed)
    result: dict[str, Any] = {"measurement": "chaos", "seed": seed, "schedule": asdict(schedule), "failure": None}
    began = time.monotonic()
    try:
        result |= runner.run(schedule).to_dict()
    except AssertionError as error:
        # A failure is a result; its files are kept for inspection.
        result["failure"] = str(error)[:4000]
    return result | {"seconds": round(time.monotonic() - began, 1)}


def main(argv: Sequence[str] | None = None) -> int:
    """Run schedules, print and write the results; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults.chaos", description=__doc__)
    parser.add_argument("--schedules", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first schedule; each next one adds 1")
    parser.add_argument("--for-s", type=float, help="start no schedule after this many seconds")
    parser.add_argument("--execute", action="store_true", help="start every process with a new interpreter")
    parser.add_argument("--folder", type=Path, help="keeps the files of schedules that fail")
    parser.add_argument("--results", type=Path)
    options = parser.parse_args(argv)
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="chaos-", dir=options.folder))
    facts = machine_facts("benchmarks.faults.chaos")
    began = time.monotonic()
    runner = ScheduleRunner(
        folder, write_model(folder / "model"), write_data(folder / "data"), is_forked=not options.execute
    )
    results: list[dict[str, Any]] = []
    try:
        for seed in range(options.seed, options.seed + options.schedules):
            if options.for_s is not None and time.monotonic() - began > options.for_s:
                break
            result = run_one(runner, seed)
            results.append(result | facts)
            state = "FAILED" if result["failure"] else "whole"
            kinds = " ".join(event["kind"] for event in result["schedule"]["events"])
            print(f"seed {seed}: {state} in {result['seconds']} s: {kinds}", flush=True)
            if options.results is not None:
                options.results.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    finally:
        runner.close()
    print(chaos_table(results))
    if any(result["failure"] for result in results):
        print(f"files of failed schedules: {folder}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
