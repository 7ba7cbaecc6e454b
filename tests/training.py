"""Real training runs in processes of their own, and what they wrote."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.conftest import REPOSITORY

TIMEOUT_S = 300


def command(*flags: str, nproc: int | None = None, max_restarts: int = 0) -> list[str]:
    """Return the command that a component starts on one node; without ``nproc`` a single process."""
    launch = []
    if nproc is not None:
        launch = ["--nnodes=1", f"--nproc-per-node={nproc}", f"--max-restarts={max_restarts}"]
    return [sys.executable, "-m", "elasticqa.launch", *launch, *flags]


def environment(home: Path, **variables: str) -> dict[str, str]:
    """Return the environment of a run whose record lies under ``home``."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("ELASTICQA_", "SLURM_"))}
    return {
        **inherited,
        "ELASTICQA_HOME": str(home),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        **variables,
    }


def train(
    home: Path, *flags: str, nproc: int | None = None, max_restarts: int = 0, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Train to the end and return the process, whatever its exit status."""
    return subprocess.run(
        command(*flags, nproc=nproc, max_restarts=max_restarts),
        cwd=REPOSITORY,
        env=environment(home, **variables),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def runs(home: Path) -> list[Path]:
    """Return the run directories, oldest first."""
    return sorted((home / "runs").glob("*")) if (home / "runs").is_dir() else []


def only_run(home: Path) -> Path:
    """Return the one run directory that must be there."""
    (directory,) = runs(home)
    return directory


def journal(directory: Path, attempt: int = 1) -> dict[str, list[dict[str, Any]]]:
    """Return the whole lines of an attempt's journal on node 0, by kind."""
    result: dict[str, list[dict[str, Any]]] = defaultdict(list)
    path = directory / "journal" / f"attempt-{attempt:04d}-node-00000.jsonl"
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            fields = json.loads(line)
            result[fields["kind"]].append(fields)
    return result


def losses(directory: Path, attempt: int = 1) -> dict[int, float]:
    """Return the loss of each step of an attempt."""
    return {line["step"]: line["loss"] for line in journal(directory, attempt)["step"]}


def fed(directory: Path, attempt: int = 1) -> dict[int, list[int]]:
    """Return the feature ids that all ranks fed in each step of an attempt, sorted."""
    result: dict[int, list[int]] = defaultdict(list)
    for path in sorted((directory / "fed").glob(f"attempt-{attempt:04d}-rank-*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            fields = json.loads(line)
            result[fields["step"]] += fields["ids"]
    return {step: sorted(ids) for step, ids in result.items()}
