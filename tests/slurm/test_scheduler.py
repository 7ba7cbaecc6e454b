"""The scheduler on a real Slurm: values that reach the tasks, nodes of an elastic job, and refusals."""

import json
import sys

import pytest
from torchx import specs

from components.slurm.scheduler import SlurmScheduler
from tests.support.processes import until
from tests.support.slurm_lab import Lab

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

HOSTILE = "a,b='c' \"d\" $HOME `id` \\ ü\nsecond line"
PRINT = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"


@pytest.fixture
def scheduler(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> SlurmScheduler:
    for name, value in lab.environment.items():
        monkeypatch.setenv(name, value)
    return SlurmScheduler("torchx", lab.home / "slurm")


def app(*args: str, min_replicas: int = 2, cpu: int = 1, env: dict[str, str] | None = None) -> specs.AppDef:
    role = specs.Role(
        name="print",
        image="",
        entrypoint=sys.executable,
        args=list(args),
        env=env or {},
        num_replicas=2,
        min_replicas=min_replicas,
        resource=specs.Resource(cpu=cpu, gpu=0, memMB=100),
    )
    return specs.AppDef("print", [role])


def test_hostile_values_reach_every_node_unchanged(
    lab: Lab, scheduler: SlurmScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As inside an allocation.
    monkeypatch.setenv("SLURM_JOB_ID", "999")
    monkeypatch.setenv("SLURM_MEM_PER_CPU", "7")
    arguments = ["-c", PRINT, HOSTILE, specs.macros.app_id, specs.macros.replica_id]
    job = scheduler.submit(app(*arguments, env={"VALUE": HOSTILE, "NEXT": "kept"}), {})
    lab.wait(job)
    for node in (0, 1):
        ((arguments, environ),) = map(json.loads, scheduler.log_iter(job, "print", node))
        assert arguments == [HOSTILE, job, str(node)]
        assert (environ["VALUE"], environ["NEXT"]) == (HOSTILE, "kept")
        assert (environ["SLURM_JOB_ID"], environ["TORCHX_RANK0_HOST"]) == (job, "node1")
        assert environ["PATH"] == lab.environment["PATH"]


def test_elastic_job_takes_all_free_nodes_and_starts_with_its_minimum(lab: Lab, scheduler: SlurmScheduler) -> None:
    both = scheduler.submit(app("-c", "pass", min_replicas=1, cpu=3), {})
    lab.wait(both)
    other = lab.out(
        "sbatch", "--parsable", "--nodelist=node2", "--cpus-per-task=4", "--output=/dev/null", "--wrap=sleep 60"
    ).strip()
    until(lambda: lab.state(other) == "RUNNING", "the other job")
    try:
        one = scheduler.submit(app("-c", "pass", min_replicas=1, cpu=3), {})
        lab.wait(one)
    finally:
        lab.out("scancel", other)
        lab.wait(other, "CANCELLED")
    for job, num_nodes in ((both, 2), (one, 1)):
        described = scheduler.describe(job)
        assert described is not None
        assert described.roles[0].num_replicas == num_nodes


def test_failed_task_fails_the_job_and_the_other_task_keeps_running(lab: Lab, scheduler: SlurmScheduler) -> None:
    # The second task waits for the end of the first.
    code = f"""
import os, pathlib, sys, time
mark, own = pathlib.Path({str(lab.home / "mark")!r}), int(os.environ["SLURM_PROCID"])
if own == 0:
    mark.touch()
while not mark.exists():
    time.sleep(0.1)
time.sleep(own)
print(own)
sys.exit(3 - 3 * own)
"""
    job = scheduler.submit(app("-c", code), {})
    lab.wait(job, "FAILED")
    assert [list(scheduler.log_iter(job, "print", node)) for node in (0, 1)] == [["0\n"], ["1\n"]]
    assert lab.status(job) == "FAILED"


@pytest.mark.parametrize(
    ("options", "arguments", "message"),
    [
        (["-cfg", "partition=nope"], [], "Invalid partition name specified"),
        ([], ["--memMB", "99999999"], "Requested node configuration is not available"),
        ([], ["--gpu", "2"], "Requested node configuration is not available"),
        ([], ["--nnodes", "3"], "would wait forever (PartitionConfig) and is cancelled"),
        ([], ["--nnodes", "2:1"], "nnodes='2:1'"),
    ],
)
def test_refused_job_has_no_traceback(options: list[str], arguments: list[str], message: str, lab: Lab) -> None:
    done = lab.torchx("run", "-s", "slurm", *options, "components/train.py:ddp", *arguments)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
