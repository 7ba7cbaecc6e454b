"""Result folders as the Hugging Face Trainer, Lightning and TensorBoard write them, for tests."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from db.importers.results import find_results, read_results
from db.importers.run import ImportedRun

ENDED_AT = 1_795_000_000.0

HISTORY: list[dict[str, Any]] = [
    {"epoch": 0.42857142857142855, "grad_norm": 2.5, "learning_rate": 4e-05, "loss": 2.1, "step": 3},
    {"epoch": 0.8571428571428571, "grad_norm": 2.25, "learning_rate": 3e-05, "loss": 2.0, "step": 6},
    {
        "epoch": 1.0,
        "eval_exact_match": 50.0,
        "eval_f1": 60.5,
        "eval_loss": 1.75,
        "eval_runtime": 0.5,
        "eval_samples_per_second": 100.0,
        "step": 7,
    },
    {"epoch": 1.2857142857142856, "grad_norm": 2.0, "learning_rate": 2e-05, "loss": 1.5, "step": 9},
    {"epoch": 1.7142857142857144, "grad_norm": None, "learning_rate": 1e-05, "loss": 1.0, "step": 12},
    {
        "epoch": 2.0,
        "step": 14,
        "total_flos": 8457600.0,
        "train_loss": 1.62,
        "train_runtime": 20.0,
        "train_samples_per_second": 5.0,
        "train_steps_per_second": 0.7,
    },
]
RESULTS = {"epoch": 2.0, "eval_exact_match": 55.0, "eval_f1": 65.0, "eval_runtime": 0.25, "eval_samples": 50}
TRAINING = {"train_loss": 1.62, "train_runtime": 20.0, "train_samples": 50, "train_samples_per_second": 5.0}


def read_run(path: Path) -> ImportedRun:
    """Return the only run in a file or folder."""
    (found,) = find_results(path)
    return read_results(found)


def state(**changes: Any) -> dict[str, Any]:
    """Return a trainer state with its keys in the order of the Trainer, which sorts them."""
    whole = {
        "best_metric": None,
        "epoch": 2.0,
        "global_step": 14,
        "log_history": HISTORY,
        "max_steps": 14,
        "num_train_epochs": 2,
        "train_batch_size": 8,
        "trial_params": None,
    }
    return dict(sorted({**whole, **changes}.items()))


def write_json(path: Path, content: Any) -> Path:
    """Write a file as the Trainer does: NaN and Infinity stay words."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n")
    os.utime(path, (ENDED_AT, ENDED_AT))
    return path


def hf_folder(folder: Path) -> Path:
    """Write an output directory with state, results and the model's configuration."""
    write_json(folder / "trainer_state.json", state())
    write_json(folder / "train_results.json", TRAINING)
    write_json(folder / "eval_results.json", RESULTS)
    write_json(folder / "all_results.json", {**TRAINING, **RESULTS})
    write_json(folder / "config.json", {"model_type": "bert", "_name_or_path": "bert-base-uncased"})
    return folder


METRICS = """epoch,lr-AdamW,step,train_loss_epoch,train_loss_step,val_f1,val_loss
,0.01,2,,,,
0,,2,,0.5,,
0,,9,,,50.0,0.25
0,,9,0.45,,,
,0.005,11,,,,
1,,11,,0.25,,
1,,14,,0.125,,
1,,19,,,51.5,0.2
"""


def lightning_folder(folder: Path, metrics: str = METRICS, hparams: str | None = "learning_rate: 0.01\n") -> Path:
    """Write a version directory and return its metrics.csv."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "metrics.csv"
    path.write_text(metrics)
    os.utime(path, (ENDED_AT, ENDED_AT))
    if hparams is not None:
        (folder / "hparams.yaml").write_text(hparams)
    return path


def lines_of(run: ImportedRun, kind: str) -> list[dict[str, Any]]:
    """Return the fields of the lines of one kind."""
    return [fields for found, _, fields in run.facts if found == kind]


def known(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are not empty."""
    return {name: value for name, value in fields.items() if value is not None}


def journal_lines(run_dir: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of the only journal of a run."""
    text = (run_dir / "journal" / "attempt-0001-node-00000.jsonl").read_text()
    yield from (json.loads(line) for line in text.splitlines())
