"""Runs that have begun, for tests of what a start resumes."""

import json
from pathlib import Path
from typing import Any

from elasticqa.config.environment import RUN_ID_VARIABLE
from elasticqa.config.train_config import TrainConfig
from elasticqa.training.resume import choose_run

CONFIG = TrainConfig(seed=3)


def make_run(runs: Path, run_id: str, *lines: dict[str, Any], attempt: int = 1, **changes: Any) -> Path:
    """Write a run whose journal has a first line and the lines given."""
    first = {"kind": "attempt", "run_id": run_id, "provenance": "measured", "config": CONFIG.to_dict(), **changes}
    folder = runs / run_id / "journal"
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(line) + "\n" for line in (first, *lines))
    (folder / f"attempt-{attempt:04d}-node-00000.jsonl").write_text(text, encoding="utf-8")
    return runs / run_id


def chosen(runs: Path, resume: str = "auto", run_id: str | None = None, **changes: Any) -> tuple[str, bool]:
    """Return the directory's name and whether it is new."""
    config = TrainConfig(**{**CONFIG.to_dict(), "resume": resume, **changes})
    choice = choose_run(config, runs, {} if run_id is None else {RUN_ID_VARIABLE: run_id})
    return choice.directory.name, choice.is_new


SETUP = {
    "kind": "setup",
    "dataset": {"name": "demo", "digest": "aaaa"},
    "model": {"name": "/models/small", "digest": "mmmm"},
}
