"""EM and F1 of elasticqa and of the Hugging Face Trainer with the same weights, data, seeds and hyper-parameters.

All runs of a GPU run at the same time, since their speed is not measured. Both kinds of predictions use the same code
for answers and metric. Results are written as runs end; runs that do not end in time are stopped and left out.
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.support.setup import facts, model_directory, model_name, parser, write
from db.storage.run_files import journal_path

RUNS = "runs.tar"
"""Suffix of the archive of all runs, written next to the results; it has a bundle or a Trainer folder per run."""
POLL_S = 0.5
CURVE_EVERY = 50
"""Steps per point of a loss curve; a point is their mean."""


@dataclass(frozen=True)
class Training:
    """A run and its process."""

    variant: str
    seed: int
    folder: Path
    process: "subprocess.Popen[bytes]"


def main() -> None:
    """Train every seed with both trainers and write the results."""
    options = parser(__doc__ or "", is_whole_dataset=True)
    options.add_argument("--model", required=True, help="directory with weights, or tiny")
    options.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options.add_argument("--cards", nargs=2, default=["0", "1"], help="GPU of elasticqa's runs, and of the Trainer's")
    options.add_argument("--max-steps", type=int, default=None)
    options.add_argument("--max-eval-examples", type=int, default=None)
    options.add_argument("--max-train-features", type=int, default=None)
    options.add_argument("--limit", type=float, default=520, help="seconds after which unfinished runs are stopped")
    given = options.parse_args()
    given.cache.mkdir(parents=True, exist_ok=True)
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=given.cache) as folder:
        trainings = start(given, Path(folder))
        try:
            for training in succeeded(trainings, time.monotonic() + given.limit):
                results.append(measurement(training, given.model))
                write(given.results, sorted(results, key=lambda row: (row["variant"], row["seed"])))
                print({name: results[-1][name] for name in ("variant", "seed", "em", "f1", "seconds")}, flush=True)
        finally:
            for training in trainings:
                training.process.kill()
                training.process.wait()
        keep(trainings, results, given.results.with_name(f"{given.results.stem}-{RUNS}"))
    for variant in ("elasticqa", "hf_bf16"):
        rows = [row for row in results if row["variant"] == variant]
        if rows:
            print(
                f"{variant}: EM {mean(r['em'] for r in rows):.2f}  F1 {mean(r['f1'] for r in rows):.2f}  n {len(rows)}"
            )


def start(given: argparse.Namespace, folder: Path) -> list[Training]:
    """Start all runs and return them."""
    model = model_directory(given.model, given.tokenizer, given.cache).resolve()
    limits = {
        "max-steps": given.max_steps,
        "max-eval-examples": given.max_eval_examples,
        "max-train-features": given.max_train_features,
    }
    limited = [f"--{name}={value}" for name, value in limits.items() if value is not None]
    common = [f"--model={model}", f"--dataset={given.dataset.resolve()}", *limited]
    trainings = []
    for seed in given.seeds:
        for variant, card in zip(("elasticqa", "hf_bf16"), given.cards, strict=True):
            place = folder / f"{variant}-{seed}"
            place.mkdir()
            command = (
                ["elasticqa.cli.main", "train", "--recipe=squad", "--resume=none", "--checkpoint-every-steps=100000"]
                if variant == "elasticqa"
                else [
                    "benchmarks.quality.hf_run",
                    f"--cache={given.cache.resolve()}",
                    f"--output={place / 'trainer'}",
                ]
            )
            environment = {"ELASTICQA_HOME": str(place), "CUDA_VISIBLE_DEVICES": card, "HF_HUB_OFFLINE": "1"}
            with (place / "log").open("wb") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", *command, *common, f"--seed={seed}"],
                    env={**os.environ, **environment},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            trainings.append(Training(variant, seed, place, process))
    return trainings


def succeeded(trainings: Iterable[Training], deadline: float) -> Iterable[Training]:
    """Yield runs as they succeed; print those that fail or do not end in time."""
    at_work = list(trainings)
    while at_work and time.monotonic() < deadline:
        done = [each for each in at_work if each.process.poll() is not None]
        at_work = [each for each in at_work if each not in done]
        for each in done:
            if each.process.returncode == 0:
                yield each
            else:
                print(f"FAILED {each.variant} {each.seed}: {_last_lines(each)}", flush=True)
        if not done:
            time.sleep(POLL_S)
    for each in at_work:
        print(f"NOT ENDED IN TIME {each.variant} {each.seed}: {_last_lines(each)}", flush=True)


def _last_lines(training: Training) -> str:
    return (training.folder / "log").read_text(errors="replace")[-1500:]


def measurement(training: Training, model: str) -> dict[str, Any]:
    """Return the result of a run."""
    found = _elasticqa_result(training.folder) if training.variant == "elasticqa" else _trainer_result(training.folder)
    return {
        "what": "quality",
        "variant": training.variant,
        "seed": training.seed,
        "model": model_name(model),
        "world_size": 1,
        **found,
        **facts(),
    }


def _elasticqa_result(home: Path) -> dict[str, Any]:
    (directory,) = (home / "runs").iterdir()
    text = journal_path(directory, attempt=1).read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    evaluation = [line for line in lines if line["kind"] == "evaluation"][-1]
    losses = [line["loss"] for line in lines if line["kind"] == "step"]
    return {
        "em": evaluation["em"],
        "f1": evaluation["f1"],
        "num_steps": len(losses),
        "seconds": round(lines[-1]["wall_clock_s"], 1),
        "losses": [round(mean(losses[i : i + CURVE_EVERY]), 4) for i in range(0, len(losses), CURVE_EVERY)],
    }


def _trainer_result(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "trainer" / "quality.json").read_text(encoding="utf-8"))
    return found


def keep(trainings: list[Training], results: list[dict[str, Any]], target: Path) -> None:
    """Write an archive for the dashboard of the runs that succeeded: journals and predictions, no weights."""
    good = {(row["variant"], row["seed"]) for row in results}
    with tarfile.open(target, "w") as archive:
        for each in trainings:
            if (each.variant, each.seed) not in good:
                continue
            name = f"{each.variant}-{each.seed}"
            if each.variant == "elasticqa":
                (directory,) = (each.folder / "runs").iterdir()
                bundle = each.folder / "bundle.tar.gz"
                subprocess.run(
                    [sys.executable, "-m", "elasticqa.cli.main", "export", directory.name, "-o", str(bundle)],
                    env={**os.environ, "ELASTICQA_HOME": str(each.folder)},
                    stdout=subprocess.DEVNULL,
                    check=True,
                )
                archive.add(bundle, f"{name}.tar.gz")
            else:
                archive.add(each.folder / "trainer" / "trainer_state.json", f"{name}/trainer_state.json")


if __name__ == "__main__":
    main()
