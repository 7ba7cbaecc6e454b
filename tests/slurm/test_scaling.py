"""A scaling study on two nodes that is killed and continued by the same command."""

import json
import signal
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import training
from tests.support.paths import REPOSITORY
from tests.support.processes import until
from tests.support.slurm_lab import Lab

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

CELLS = ("none-1x1", "ddp-1x1", "ddp-2x1", "fsdp-1x1", "fsdp-2x1")
REPEATS = 2
STUDY = (
    "--strategies=ddp,fsdp", "--nodes=1,2", "--nproc-per-node=1", f"--repeats={REPEATS}", "--scheduler=slurm",
    "--in-flight=2", "--cpus-per-process=1", "--memory-per-process=1024",
)  # fmt: skip


def scaling(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "elasticqa.cli.main", "scaling", *arguments]


def lines_of(lab: Lab) -> list[dict[str, Any]]:
    """Return the complete lines of the only study's file."""
    paths = list((lab.home / "studies").glob("*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_bytes().split(b"\n")[:-1] if line]


def has_two_finished_runs(lab: Lab) -> bool:
    """Return whether two runs have finished and another has just been submitted."""
    lines = lines_of(lab)
    num_ended = sum(line["kind"] == "ended" for line in lines)
    return num_ended >= 2 and bool(lines[-1]["kind"] == "submitted")


def forget_submission(lab: Lab) -> str:
    """Remove the last submission from the file, as if the kill had come before it was noted; return the run's id."""
    (path,) = (lab.home / "studies").glob("*.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if json.loads(line)["kind"] == "submitted")
    run_id: str = json.loads(lines.pop(last))["run_id"]
    path.write_text("".join(lines))
    return run_id


def tags_of(directory: Path) -> dict[str, str]:
    lines = map(json.loads, (directory / "annotations.jsonl").read_text().splitlines())
    return dict(line["value"].split(":") for line in lines if line["kind"] == "tag")


@pytest.fixture(scope="module")
def study(cluster: Path, flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, str, str]:
    """Return the cluster after a killed and continued study, the id of the run found again, and the output."""
    lab = Lab(cluster, tmp_path_factory.mktemp("home"))
    command = scaling(*STUDY, "--", *flags, "--epochs=4")
    first = subprocess.Popen(command, cwd=REPOSITORY, env=lab.environment, stdout=subprocess.DEVNULL)
    try:
        until(lambda: has_two_finished_runs(lab), "two finished runs and a third submitted")
    finally:
        first.kill()
    assert first.wait() == -signal.SIGKILL
    forgotten = forget_submission(lab)
    done = replace(lab, timeout_s=None).run(*command)
    assert done.returncode == 0, done.stdout + done.stderr
    return lab, forgotten, done.stdout


def test_killed_study_submits_only_what_is_missing(study: tuple[Lab, str, str]) -> None:
    lab, forgotten, output = study
    by_cell: dict[str, list[str]] = defaultdict(list)
    for directory in training.runs(lab.home):
        tags = tags_of(directory)
        assert training.journal(directory)["end"][0]["status"] == "finished"
        assert not (directory / "journal" / "attempt-0002.claim").exists()
        by_cell[tags["cell"]].append(tags["repeat"])
    assert {cell: sorted(repeats) for cell, repeats in by_cell.items()} == {cell: ["1", "2"] for cell in CELLS}
    assert len({job_of(directory) for directory in training.runs(lab.home)}) == len(CELLS) * REPEATS
    # The kill may have come between a submission and the file of its job.
    assert len(list((lab.home / "slurm").glob("*.json"))) <= len(CELLS) * REPEATS
    # On a busy machine the run may have finished before the study continued.
    handle = f"slurm://torchx/{job_of(lab.home / 'runs' / forgotten)}"
    submitted = [line for line in output.splitlines() if line.endswith(handle)]
    assert all("found again" in line for line in submitted)
    assert any(line["kind"] == "submitted" and line["run_id"] == forgotten for line in lines_of(lab))


def job_of(directory: Path) -> str:
    job_id: str = training.journal(directory)["attempt"][0]["scheduler"]["job_id"]
    return job_id


def test_every_run_of_a_study_does_the_same_work(study: tuple[Lab, str, str]) -> None:
    directories = training.runs(study[0].home)
    (reference, *_) = (directory for directory in directories if tags_of(directory)["cell"] == "none-1x1")
    by_cell: dict[str, list[dict[int, float]]] = defaultdict(list)
    for directory in directories:
        assert training.fed(directory) == training.fed(reference)
        by_cell[tags_of(directory)["cell"]].append(training.losses(directory))
    for losses in by_cell.values():
        assert losses[0] == losses[1]
        assert losses[0] == pytest.approx(training.losses(reference), abs=1e-4)


def test_table_of_a_study_survives_the_loss_of_the_database(study: tuple[Lab, str, str]) -> None:
    lab, _, output = study
    rows = [line for line in output.splitlines() if line.startswith("| demo")]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [(row[0].split(", ")[1], row[1], row[2]) for row in cells] == [
        ("none", "1 x 1", "2"), ("ddp", "1 x 1", "2"), ("ddp", "2 x 1", "2"),
        ("fsdp", "1 x 1", "2"), ("fsdp", "2 x 1", "2"),
    ]  # fmt: skip
    kinds = ("speedup", "speedup, strong scaling")
    assert [row[6] for row in cells] == ["reference", *kinds, *kinds]
    walls = [float(row[3]) for row in cells]
    for row, wall in zip(cells[1:], walls[1:], strict=True):
        least, most = (walls[0] - 0.05) / (wall + 0.05), (walls[0] + 0.05) / (wall - 0.05)  # as output: 1 decimal
        assert least - 0.0051 <= float(row[4]) <= most + 0.0051  # as output: 2 decimals
    for path in lab.home.glob("elasticqa.db*"):
        path.unlink()
    (path,) = (lab.home / "studies").glob("*.jsonl")
    again = lab.out(*scaling("--table", path.stem))
    assert [line for line in again.splitlines() if line.startswith("| demo")] == rows
    latex = lab.out(*scaling("--table", path.stem, "--format", "latex"))
    assert r"\toprule" in latex
