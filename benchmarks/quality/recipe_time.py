"""Time of the whole recipe `squad` from a new process to EM and F1, cold and warm, and of its parts.

Cold: an empty home, so that features are built and code is compiled. Warm: a second run in the same home. All values
except the time of the process come from the run's own journal.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.support.setup import facts, model_directory, model_name, parser, write
from db.storage.run_files import journal_path


def main() -> None:
    """Run cold, then warm."""
    options = parser(__doc__ or "", is_whole_dataset=True)
    options.add_argument("--model", default="bert-base", help="tiny, bert-base, bert-large or a directory")
    options.add_argument("--times", nargs="+", default=["cold", "warm"], help="one run each")
    given, more = options.parse_known_args()
    folder = model_directory(given.model, given.tokenizer, given.cache)
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as home:
        for name in given.times:
            row = {
                "what": "recipe",
                "variant": name,
                "recipe": "squad",
                "model": model_name(given.model),
                "world_size": 1,
            }
            row |= run(Path(home), folder, given.dataset, more) | facts()
            results.append(row)
            write(given.results, results)
            print(f"{name}: {row['process_s']:.1f} s, " + ", ".join(f"{k} {v:.1f}" for k, v in row["parts_s"].items()))


def run(home: Path, model: Path, dataset: Path, more: list[str]) -> dict[str, Any]:
    """Run the recipe and return its result and the parts of its time.

    Args:
        home: ELASTICQA_HOME of the run.
        model: directory.
        dataset: directory.
        more: options of `elasticqa train`.
    """
    command = [sys.executable, "-m", "elasticqa.cli.main", "train", "--recipe=squad", f"--model={model.resolve()}"]
    known = set((home / "runs").glob("*"))
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output:
        done = subprocess.run(
            [*command, f"--dataset={dataset.resolve()}", "--resume=none", *more],
            env={**os.environ, "ELASTICQA_HOME": str(home), "HF_HUB_OFFLINE": "1"},
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
        seconds = time.perf_counter() - began
        output.seek(0)
        if done.returncode:
            raise SystemExit(f"the run failed: {output.read()[-3000:]}")
    (directory,) = set((home / "runs").glob("*")) - known
    return account(directory, seconds)


def account(directory: Path, seconds: float) -> dict[str, Any]:
    """Return the result of a run and the parts of its time, whose sum is the time of the process.

    Args:
        directory: run directory.
        seconds: time of the process.
    """
    lines: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for text in journal_path(directory, attempt=1).read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        lines[line["kind"]].append(line)
    (setup,), (end,) = lines["setup"], lines["end"]
    steady = [step["step_time_s"] for step in lines["step"] if not step["is_warmup"]]
    warm_up = [step["step_time_s"] for step in lines["step"] if step["is_warmup"]]
    usual = median(steady) if steady else 0.0
    parts = dict(setup["phases"])
    parts |= end["phases"]
    parts["steps"] = sum(steady) + usual * len(warm_up)
    parts["capture"] = sum(warm_up) - usual * len(warm_up)
    parts["evaluate"] = sum(line["eval_time_s"] for line in lines["evaluation"])
    parts["save"] = sum(line["blocked_time_s"] for line in lines["checkpoint"])
    parts["between"] = end["wall_clock_s"] - sum(parts.values())
    parts["ingest and exit"] = seconds - end["wall_clock_s"]
    evaluation = lines["evaluation"][-1] if lines["evaluation"] else {}
    return {
        "process_s": round(seconds, 2),
        "parts_s": {name: round(value, 2) for name, value in parts.items()},
        "num_steps": len(lines["step"]),
        "step_ms": {"mean": round(1e3 * mean(steady), 3), "p50": round(1e3 * usual, 3)} if steady else None,
        "em": evaluation.get("em"),
        "f1": evaluation.get("f1"),
        "final_loss": end["final_loss"],
        "peak_memory_bytes": end["peak_memory_bytes"],
        "precision": setup["precision"],
        "attention": setup["attention"],
        "is_captured": setup["is_captured"],
        "is_compiled": setup["is_compiled"],
        "is_fused": setup["is_fused"],
    }


if __name__ == "__main__":
    main()
