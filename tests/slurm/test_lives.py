"""Requeue, time limit, preemption and cancel of jobs."""

from pathlib import Path

import pytest

from tests.support import training
from tests.support.processes import until
from tests.support.slurm_lab import HELD, NUM_STEPS, TIMEOUT_S, Lab

pytestmark = [pytest.mark.slurm, pytest.mark.slow]


COMMAND = ("components/train.py:ddp", "--nnodes", "2", "--env", HELD, "--")


def begin(lab: Lab, flags: list[str], *options: str) -> str:
    """Return the number of a job that has trained some steps and is suspended until it is asked to stop."""
    job = lab.submit(*options, *COMMAND, *flags)
    hold_after_steps(lab, job)
    return job


def hold_after_steps(lab: Lab, job: str) -> None:
    until(lambda: has_trained(lab.home, 5), f"step 5 of job {job}")
    lab.hold(job, 2)


def has_trained(home: Path, num_steps: int) -> bool:
    return any(
        len(training.losses(path)) >= num_steps
        for path in training.runs(home)
        if (path / "journal" / "attempt-0001-node-00000.jsonl").exists()
    )


def assert_second_attempt_resumed(directory: Path, reference: Path, *, reason: str) -> None:
    """Assert that both attempts together have the steps, features and losses of one process."""
    first, second = training.journal(directory), training.journal(directory, 2)
    assert first["end"][0]["status"] == "preempted"
    assert reason in first["end"][0]["reason"]
    stopped_at = first["end"][0]["step"]
    assert 5 <= stopped_at < NUM_STEPS
    assert [line["step"] for line in first["checkpoint"]] == [stopped_at]
    assert second["setup"][0]["start_step"] == stopped_at
    assert list(training.losses(directory, 2)) == list(range(stopped_at + 1, NUM_STEPS + 1))
    assert second["end"][0]["status"] == "finished"
    assert training.losses(directory) | training.losses(directory, 2) == pytest.approx(
        training.losses(reference), abs=1e-4
    )
    assert training.fed(directory) | training.fed(directory, 2) == training.fed(reference)
    before, after = (lines["attempt"][0]["scheduler"] for lines in (first, second))
    assert before["job_id"] == after["job_id"]
    assert before["submitted_at"] < before["started_at"] < after["submitted_at"] < after["started_at"]


def test_requeued_job_resumes_as_the_second_attempt_of_its_run(lab: Lab, flags: list[str], reference: Path) -> None:
    with lab.submit_and_wait(*COMMAND, *flags) as (job, waiting):
        hold_after_steps(lab, job)
        lab.out("scontrol", "requeue", job)
        until(lambda: lab.status(job) == "PENDING", "the requeue")
        lab.start(job)
        lab.wait(job)
        assert waiting.wait(TIMEOUT_S) == 0
    assert_second_attempt_resumed(training.only_run(lab.home), reference, reason="SIGTERM")


def test_job_at_its_time_limit_saves_and_resumes(lab: Lab, flags: list[str], reference: Path) -> None:
    job = begin(lab, flags, "-cfg", "time=60,signal=USR1@600")
    # Slurm checks time limits every 30 s: the warning is due at once, the end minutes later.
    lab.out("scontrol", "update", f"JobId={job}", "TimeLimit=10")
    until(lambda: lab.state(job) == "PENDING", "the requeue")
    lab.out("scontrol", "update", f"JobId={job}", "TimeLimit=60")
    lab.start(job)
    lab.wait(job)
    assert_second_attempt_resumed(training.only_run(lab.home), reference, reason="SIGUSR1")


def test_preempted_job_saves_and_resumes(lab: Lab, flags: list[str], reference: Path) -> None:
    job = begin(lab, flags)
    urgent = lab.out(
        "sbatch", "--parsable", "--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=true"
    ).strip()
    until(lambda: lab.state(job) == "PENDING", "the preemption")
    lab.wait(urgent)
    lab.start(job)
    lab.wait(job)
    assert_second_attempt_resumed(training.only_run(lab.home), reference, reason="SIGTERM")


def test_cancelled_job_saves_and_is_not_requeued(lab: Lab, flags: list[str]) -> None:
    job = begin(lab, flags)
    done = lab.torchx("cancel", f"slurm://torchx/{job}")
    assert done.returncode == 0, done.stderr
    lab.wait(job, "CANCELLED")
    assert lab.status(job) == "CANCELLED"
    directory = training.only_run(lab.home)
    end = training.journal(directory)["end"][0]
    assert end["status"] == "preempted"
    assert end["reason"].startswith("asked to stop by SIGTERM")
    assert (directory / "checkpoints" / f"step-{end['step']:08d}" / "manifest.json").exists()
