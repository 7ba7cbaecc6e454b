"""Training on two nodes: losses of one process, every feature once, and a complete record."""

import json
from pathlib import Path

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from db.engine import create_engine_for
from db.models import Attempt
from tests.support import training
from tests.support.paths import REPOSITORY
from tests.support.slurm_lab import NUM_STEPS, Lab

pytestmark = [pytest.mark.slurm, pytest.mark.slow]


@pytest.fixture(scope="module")
def jobs(cluster: Path, flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, dict[str, str]]:
    """Return the numbers of two jobs by strategy; they train at the same time on the same two nodes.

    They are submitted from another directory than the repository, with a home directory whose name needs quoting.
    """
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    lab = Lab(cluster, elsewhere / "it's a home, 100% of it", cwd=elsewhere)
    jobs = {
        parallel: lab.submit(f"{REPOSITORY}/components/train.py:{parallel}", "--nnodes", "2", "--", *flags)
        for parallel in ("ddp", "fsdp")
    }
    for job in jobs.values():
        lab.wait(job)
    return lab, jobs


def run_of(lab: Lab, parallel: str) -> Path:
    (directory,) = (
        path
        for path in training.runs(lab.home)
        if training.journal(path)["attempt"][0]["config"]["parallel"] == parallel
    )
    return directory


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_nodes_have_the_losses_of_one_process(
    parallel: str, jobs: tuple[Lab, dict[str, str]], reference: Path
) -> None:
    directory = run_of(jobs[0], parallel)
    losses = training.losses(directory)
    assert list(losses) == list(range(1, NUM_STEPS + 1))
    assert losses == pytest.approx(training.losses(reference), abs=1e-4)
    assert training.fed(directory) == training.fed(reference)
    ranks = {path.name for path in (directory / "fed").iterdir()}
    assert ranks == {f"attempt-0001-rank-{rank:05d}.jsonl" for rank in (0, 1)}


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_record_has_job_nodes_partition_and_queue_wait(parallel: str, jobs: tuple[Lab, dict[str, str]]) -> None:
    lab, numbers = jobs
    directory = run_of(lab, parallel)
    with Session(create_engine_for(f"sqlite:///{lab.home / 'elasticqa.db'}")) as session:
        attempt = session.scalars(select(Attempt).where(Attempt.run_id == directory.name)).one()
    facts = attempt.scheduler
    assert (facts["kind"], facts["job_id"]) == ("slurm", numbers[parallel])
    assert (facts["partition"], facts["node_list"]) == ("main", "node[1-2]")
    assert (attempt.world_size, attempt.num_nodes, attempt.status) == (2, 2, "finished")
    assert attempt.queue_wait_s is not None
    assert facts["started_at"] - attempt.queue_wait_s < facts["started_at"] < attempt.started_at
    hosts = training.journal(directory)["hosts"][0]["hosts"]
    assert sorted(host["host_name"] for host in hosts) == ["node1", "node2"]
    journals = sorted((directory / "journal").glob("*.jsonl"))
    assert [json.loads(path.read_text().splitlines()[0])["node_rank"] for path in journals] == [0, 1]


def test_status_list_and_log_of_finished_jobs(jobs: tuple[Lab, dict[str, str]]) -> None:
    lab, numbers = jobs
    listed = lab.torchx("list", "-s", "slurm").stdout
    for job in numbers.values():
        assert lab.status(job) == "SUCCEEDED"
        assert any(line.split() == [f"slurm://torchx/{job}", "SUCCEEDED"] for line in listed.splitlines())
    log = lab.torchx("log", "--regex", "^step ", f"slurm://torchx/{numbers['ddp']}/ddp/0,1").stdout
    assert sum(f"step {NUM_STEPS}/{NUM_STEPS}" in line for line in log.splitlines()) == 1
