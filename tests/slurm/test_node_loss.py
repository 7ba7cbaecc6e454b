"""Loss of a node: a job that needs all nodes is requeued, an elastic job continues with the remaining ones."""

import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.support import training
from tests.support.processes import until
from tests.support.slurm_lab import Lab
from tests.support.training import trained

pytestmark = [pytest.mark.slurm, pytest.mark.slow]


NUM_STEPS = 320
"""Enough steps to lose a node, and to detect it, before the end."""


@pytest.fixture(scope="module")
def flags(flags: list[str]) -> list[str]:
    """Return the options of a longer run, with a low learning rate: another order of sums makes losses drift apart."""
    return [*flags, f"--epochs={NUM_STEPS // 8}", "--learning-rate=1e-4"]


@pytest.fixture(scope="module")
def reference(flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run directory of the longer run in one process."""
    return trained(tmp_path_factory.mktemp("reference"), *flags)


def begin(lab: Lab, flags: list[str], nnodes: str) -> str:
    """Return the number of a job that has saved a checkpoint."""
    job = lab.submit("components/train.py:ddp", "--nnodes", nnodes, "--", *flags, "--checkpoint-every-steps=10")
    until(lambda: has_saved(lab.home), f"a checkpoint of job {job}")
    return job


def has_saved(home: Path) -> bool:
    return any(has_begun(path, 1) and training.journal(path)["checkpoint"] for path in training.runs(home))


def assert_resumed(directory: Path, reference: Path) -> None:
    """Assert that the second attempt began at a checkpoint and that all steps are those of one process."""
    start = training.journal(directory, 2)["setup"][0]["start_step"]
    assert start >= 10
    assert start % 10 == 0
    assert list(training.losses(directory, 2)) == list(range(start + 1, NUM_STEPS + 1))
    assert training.losses(directory) | training.losses(directory, 2) == pytest.approx(
        training.losses(reference), abs=1e-4
    )
    assert training.fed(directory) | training.fed(directory, 2) == training.fed(reference)
    assert training.journal(directory, 2)["end"][0]["status"] == "finished"


def test_job_that_needs_both_nodes_waits_for_the_lost_one(lab: Lab, flags: list[str], reference: Path) -> None:
    job = begin(lab, flags, "2")
    lab.power("node2", on=False)
    try:
        until(lambda: lab.state(job) == "PENDING", "the requeue")
        assert lab.status(job) == "PENDING"
    finally:
        lab.power("node2", on=True)
    # With a delay: Slurm 22.05 never starts the step of a job if its node has just come back.
    lab.start(job, "now+30seconds")
    lab.wait(job)
    directory = training.only_run(lab.home)
    assert_resumed(directory, reference)
    assert training.journal(directory, 2)["attempt"][0]["world_size"] == 2


def test_elastic_job_that_lost_its_first_node_is_requeued(lab: Lab, flags: list[str], reference: Path) -> None:
    job = begin(lab, flags, "1:2")
    lab.power("node1", on=False)
    try:
        until(lambda: lab.state(job) == "PENDING", "the requeue")
        lab.start(job)
        lab.wait(job)
    finally:
        lab.power("node1", on=True)
    directory = training.only_run(lab.home)
    assert_resumed(directory, reference)
    attempt = training.journal(directory, 2)["attempt"][0]
    assert (attempt["world_size"], attempt["host"]["host_name"]) == (1, "node2")


def test_elastic_job_resumes_without_the_lost_node(lab: Lab, flags: list[str], reference: Path) -> None:
    job = begin(lab, flags, "1:2")
    lab.power("node2", on=False)
    try:
        lab.wait(job)
    finally:
        lab.power("node2", on=True)
    directory = training.only_run(lab.home)
    assert_resumed(directory, reference)
    assert training.journal(directory, 2)["attempt"][0]["world_size"] == 1


def test_elastic_job_grows_again_when_the_lost_node_is_back(lab: Lab, flags: list[str], reference: Path) -> None:
    job = begin(lab, flags, "1:2")
    directory = training.only_run(lab.home)
    lab.power("node2", on=False)
    try:
        until(lambda: has_begun(directory, 2), "the attempt of one node")
        (worker,) = lab.workers(job)
        # Suspended until the other node joins, so that the run does not end first.
        worker.send_signal(signal.SIGSTOP)
        assert len(training.losses(directory, 2)) < NUM_STEPS - 100
        # Slurm does not report a node that returns before it is missed.
        until(lambda: "node2" in lab.out("sinfo", "--noheader", "--Node", "--states=down", "--format=%N"), "the loss")
    finally:
        lab.power("node2", on=True)
    until(lambda: is_asked_to_stop(worker), "the node that joins")
    with suppress(psutil.NoSuchProcess):
        worker.send_signal(signal.SIGCONT)
    lab.wait(job)
    assert [training.journal(directory, n)["attempt"][0]["world_size"] for n in (1, 2, 3)] == [2, 1, 2]
    assert training.journal(directory, 2)["end"][0]["status"] == "preempted"
    start = training.journal(directory, 3)["setup"][0]["start_step"]
    assert start == training.journal(directory, 2)["end"][0]["step"]
    assert training.journal(directory, 3)["end"][0]["status"] == "finished"
    attempts = (1, 2, 3)
    losses = {step: loss for n in attempts for step, loss in training.losses(directory, n).items()}
    fed = {step: ids for n in attempts for step, ids in training.fed(directory, n).items()}
    assert losses == pytest.approx(training.losses(reference), abs=1e-4)
    assert fed == training.fed(reference)
    assert {line["scheduler"]["job_id"] for n in attempts for line in training.journal(directory, n)["attempt"]} == {
        job
    }
    # The joining job ends by itself when it notices the end of the job.
    until(lambda: not lab.joiners(job), f"the end of the jobs that joined job {job}")


def has_begun(directory: Path, attempt: int) -> bool:
    """Return whether an attempt has trained a step."""
    path = directory / "journal" / f"attempt-{attempt:04d}-node-00000.jsonl"
    return path.exists() and bool(training.losses(directory, attempt))


def is_asked_to_stop(process: psutil.Process) -> bool:
    """Return whether SIGTERM is pending for a suspended process, or the process has been resumed and has ended."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return True
    (pending,) = (line.split()[1] for line in status.splitlines() if line.startswith("ShdPnd:"))
    return bool(int(pending, 16) >> (signal.SIGTERM - 1) & 1)
