"""Hundreds of real runs under faults drawn from seeds; the table of what happened is printed and kept.

Each schedule is a job of real agents and trainers on this machine that must end as the uninterrupted run does
(tests/chaos/check.py says what is compared). Processes start with their imports done unless `--execute` is given, so
recovery times here leave out the start of the interpreter; benchmarks/faults/recovery.py has it in.
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

from benchmarks.support.circumstances import circumstances
from benchmarks.support.small_run import write_data, write_model
from benchmarks.tables.fault_rows import chaos
from tests.chaos.laboratory import Laboratory
from tests.chaos.schedule import draw


def run_one(laboratory: Laboratory, seed: int) -> dict[str, Any]:
    """Return what the schedule of a seed came to."""
    schedule = draw(seed)
    result: dict[str, Any] = {"measurement": "chaos", "seed": seed, "schedule": asdict(schedule), "failure": None}
    began = time.monotonic()
    try:
        result |= laboratory.run(schedule).to_dict()
    except AssertionError as error:
        # What failed is a result; its files stay for whoever looks into it.
        result["failure"] = str(error)[:4000]
    return result | {"seconds": round(time.monotonic() - began, 1)}


def main(argv: Sequence[str] | None = None) -> int:
    """Run schedules, print the table, keep it; returns 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults.chaos", description=__doc__)
    parser.add_argument("--schedules", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first schedule; the next one's is one more")
    parser.add_argument("--for-s", type=float, help="begin no schedule after so many seconds")
    parser.add_argument("--execute", action="store_true", help="every process with an interpreter of its own")
    parser.add_argument("--folder", type=Path, help="for the files of schedules that fail")
    parser.add_argument("--results", type=Path)
    options = parser.parse_args(argv)
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="chaos-", dir=options.folder))
    facts = circumstances("benchmarks.faults.chaos")
    began = time.monotonic()
    laboratory = Laboratory(
        folder, write_model(folder / "model"), write_data(folder / "data"), is_forked=not options.execute
    )
    results: list[dict[str, Any]] = []
    try:
        for seed in range(options.seed, options.seed + options.schedules):
            if options.for_s is not None and time.monotonic() - began > options.for_s:
                break
            result = run_one(laboratory, seed)
            results.append(result | facts)
            state = "FAILED" if result["failure"] else "whole"
            kinds = " ".join(event["kind"] for event in result["schedule"]["events"])
            print(f"seed {seed}: {state} in {result['seconds']} s: {kinds}", flush=True)
            if options.results is not None:
                options.results.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    finally:
        laboratory.close()
    print(chaos(results))
    if any(result["failure"] for result in results):
        print(f"files of what failed: {folder}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
