"""A node that loses its power: a job that needs all its nodes is queued again, an elastic one goes on with the rest."""

from pathlib import Path

import pytest

from tests import training
from tests.slurm.conftest import NUM_STEPS
from tests.slurm.lab import Lab, until
from tests.slurm.test_lives import has_trained

pytestmark = [pytest.mark.slurm, pytest.mark.slow]


def begin(lab: Lab, flags: list[str], nnodes: str) -> str:
    """Return the number of a job that has saved a checkpoint."""
    job = lab.submit("components/train.py:ddp", "--nnodes", nnodes, "--", *flags, "--checkpoint-every-steps=10")
    until(lambda: has_trained(lab.home, 15), f"step 15 of job {job}")
    return job


def assert_went_on(directory: Path, reference: Path) -> None:
    """The second attempt began at a checkpoint and all steps are those of one process."""
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
    # At once, Slurm 22.05 would start the job and never its step, since the node has only just come back.
    lab.start(job, "now+30seconds")
    lab.wait(job)
    directory = training.only_run(lab.home)
    assert_went_on(directory, reference)
    assert training.journal(directory, 2)["attempt"][0]["world_size"] == 2


def test_elastic_job_that_lost_its_first_node_is_queued_again(lab: Lab, flags: list[str], reference: Path) -> None:
    job = begin(lab, flags, "1:2")
    lab.power("node1", on=False)
    try:
        until(lambda: lab.state(job) == "PENDING", "the requeue")
        lab.start(job)
        lab.wait(job)
    finally:
        lab.power("node1", on=True)
    directory = training.only_run(lab.home)
    assert_went_on(directory, reference)
    attempt = training.journal(directory, 2)["attempt"][0]
    assert (attempt["world_size"], attempt["host"]["host_name"]) == (1, "node2")


def test_elastic_job_goes_on_without_the_lost_node(lab: Lab, flags: list[str], reference: Path) -> None:
    job = begin(lab, flags, "1:2")
    lab.power("node2", on=False)
    try:
        lab.wait(job)
    finally:
        lab.power("node2", on=True)
    directory = training.only_run(lab.home)
    assert_went_on(directory, reference)
    assert training.journal(directory, 2)["attempt"][0]["world_size"] == 1
