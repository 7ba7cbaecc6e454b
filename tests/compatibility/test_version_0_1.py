"""Files of version 0.1: a finished run, a run stopped at step 12 of 24, their database, and the uninterrupted losses.

Both runs trained a two-layer BERT with DDP on two processes on a CPU, with dropout.
"""

import json
import subprocess
import tarfile
from pathlib import Path

import pytest

from db.engine import create_engine_for, migrate
from db.ingest.update import ingest
from tests.support import training
from tests.support.paths import REPOSITORY
from tests.support.processes import run_python
from tests.support.rows import every_row, of_runs, rebuilt

FINISHED, STOPPED = "01M8KBFEBH7P7QWJGNBA1EQG8P", "01M8KBFSAT0EWFDDP1XHPBE9M2"
FLAGS = [
    "--recipe=demo", "--model=model", "--dataset=data", "--max-length=96", "--doc-stride=24",
    "--global-batch-size=7", "--micro-batch-size=4", "--learning-rate=1e-3", "--log-every-s=0", "--no-eval-before",
    "--epochs=40", "--max-steps=24", "--parallel=ddp", "--name=stopped", "--checkpoint-every-steps=4",
    "--keep-checkpoints=1",
]  # fmt: skip


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Return a folder with the files of the earlier version."""
    with tarfile.open(Path(__file__).with_name("version-0.1.tar.xz")) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def run(kept: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a module from the folder that holds its model and data."""
    environ = training.environment(kept / "home", PYTHONPATH=str(REPOSITORY))
    return run_python("-m", *command, cwd=kept, env=environ)


def test_database_migrates_and_equals_one_rebuilt_from_the_journals(kept: Path) -> None:
    engine = create_engine_for(f"sqlite:///{kept / 'home' / 'elasticqa.db'}")
    migrate(engine)
    assert of_runs(ingest(engine, kept / "home" / "runs")) == []
    assert every_row(engine) == rebuilt(kept / "home" / "runs", kept)
    engine.dispose()


@pytest.mark.slow
def test_stopped_run_resumes_on_the_losses_of_the_uninterrupted_one(kept: Path) -> None:
    reference = {int(step): loss for step, loss in json.loads((kept / "losses.json").read_text()).items()}
    launch = ["elasticqa.cli.launch", "--nnodes=1", "--nproc-per-node=2", "--max-restarts=0"]
    ended = run(kept, *launch, *FLAGS)
    assert ended.returncode == 0, ended.stderr
    directory = kept / "home" / "runs" / STOPPED
    assert training.journal(directory, 2)["setup"][0]["start_step"] == 12
    # Another CPU may sum in another order.
    assert training.losses(directory, 2) == pytest.approx({step: reference[step] for step in range(13, 25)}, abs=1e-6)
    assert training.journal(directory, 2)["end"][0]["status"] == "finished"


@pytest.mark.slow
def test_finished_run_is_listed_verified_and_answers_questions(kept: Path) -> None:
    listed = run(kept, "elasticqa.cli.main", "runs")
    assert FINISHED in listed.stdout
    assert STOPPED in listed.stdout
    checked = run(kept, "elasticqa.cli.main", "checkpoints", FINISHED, "--verify")
    assert checked.returncode == 0, checked.stderr
    answered = run(kept, "elasticqa.cli.main", "predict", FINISHED, "--input=data/dev.json")
    assert answered.returncode == 0, answered.stderr
    assert "F1" in answered.stderr
