"""Real training runs in processes of their own, and what they wrote."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elasticqa.run.metrics import Evaluation, StepMetrics
from tests.support.paths import REPOSITORY
from tests.support.processes import run

STEP = StepMetrics(
    step=1,
    epoch=0,
    samples_seen=10,
    loss=2.5,
    grad_norm=0.75,
    learning_rate=3e-5,
    step_time_s=0.5,
    data_time_s=0.1,
    num_features=10,
    num_tokens=2000,
    num_padded_tokens=3072,
    peak_memory_bytes=None,
    is_warmup=True,
)
EVALUATION = Evaluation(
    step=5,
    split="dev",
    em=50.0,
    f1=62.345,
    loss=None,
    num_examples=7,
    num_features=9,
    eval_time_s=1.25,
    predictions=None,
)


_PIPE_BYTES = 4096
"""With one read of the reader, room for less than 120 step lines: then a run whose output is not read blocks."""


def command(*flags: str, nproc: int | None = None, max_restarts: int = 1) -> list[str]:
    """Return the command that a component starts on one node; without ``nproc`` a single process.

    A port that the agent chose and another program took meanwhile ends the first start, before there is an attempt.
    """
    launch = []
    if nproc is not None:
        launch = ["--nnodes=1", f"--nproc-per-node={nproc}", f"--max-restarts={max_restarts}"]
    return [sys.executable, "-m", "elasticqa.cli.launch", *launch, *flags]


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


def flags(model: Path, data: Path, *more: str) -> list[str]:
    """Return flags of a run of 8 steps an epoch on 53 features: 3 ranks do not divide 7, and the last batch is 4."""
    return [
        "--recipe=demo", f"--model={model}", f"--dataset={data}", "--max-length=160", "--doc-stride=32",
        "--global-batch-size=7", "--micro-batch-size=3", "--learning-rate=1e-3", "--log-every-s=0", "--no-eval-before",
        *more,
    ]  # fmt: skip


@contextmanager
def started(home: Path, command: list[str], step: int) -> Iterator[subprocess.Popen[str]]:
    """Give a process, in a session of its own, that has just said that a step is done; its end is waited for.

    It gets no further than some 120 steps while the block runs.
    """
    with subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        pipesize=_PIPE_BYTES,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(f"step {step}/"):
                break
        yield process
        # Whoever writes into a full pipe would never end.
        process.stdout.read()


def train(
    home: Path, *flags: str, nproc: int | None = None, max_restarts: int = 1, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Train to the end and return the process with any exit status."""
    return run(*command(*flags, nproc=nproc, max_restarts=max_restarts), env=environment(home, **variables))


def runs(home: Path) -> list[Path]:
    """Return the run directories, oldest first."""
    return sorted((home / "runs").glob("*")) if (home / "runs").is_dir() else []


def only_run(home: Path) -> Path:
    """Return the one run directory that must be there."""
    (directory,) = runs(home)
    return directory


def journal(directory: Path, attempt: int = 1) -> dict[str, list[dict[str, Any]]]:
    """Return the whole lines of an attempt's journal on node 0, by kind; their numbers have no gap.

    A line that a full disk or a kill has torn may stand before an `end` that another process wrote.
    """
    result: dict[str, list[dict[str, Any]]] = defaultdict(list)
    *lines, _ = (directory / "journal" / f"attempt-{attempt:04d}-node-00000.jsonl").read_bytes().split(b"\n")
    for number, raw in enumerate(lines, start=1):
        try:
            line = json.loads(raw)
        except ValueError:
            is_torn = number == len(lines) - 1 and json.loads(lines[-1])["kind"] == "end"
            assert is_torn, f"attempt {attempt} has a line {number} that is no JSON"
            continue
        assert line["n"] == number, f"attempt {attempt} has a gap"
        result[line["kind"]].append(line)
    return result


def losses(directory: Path, attempt: int = 1) -> dict[int, float]:
    """Return the loss of each step of an attempt."""
    return {line["step"]: line["loss"] for line in journal(directory, attempt)["step"]}


def fed(directory: Path, attempt: int = 1) -> dict[int, list[int]]:
    """Return the feature ids that all ranks fed in each step of an attempt, sorted; a torn last line is left out."""
    result: dict[int, list[int]] = defaultdict(list)
    for path in sorted((directory / "fed").glob(f"attempt-{attempt:04d}-rank-*.jsonl")):
        for line in path.read_bytes().split(b"\n")[:-1]:
            fields = json.loads(line)
            result[fields["step"]] += fields["ids"]
    return {step: sorted(ids) for step, ids in result.items()}


def trained(home: Path, *flags: str, nproc: int | None = None) -> Path:
    """Train to the end, which must succeed, and return the only run directory under ``home``."""
    done = train(home, *flags, nproc=nproc)
    assert done.returncode == 0, done.stdout + done.stderr
    return only_run(home)
