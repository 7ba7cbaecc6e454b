"""Incompatible nodes, which are refused in seconds, in one line and without a requeue; and the check job."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from tests.support import training
from tests.support.processes import until
from tests.support.slurm_lab import Lab

pytestmark = [pytest.mark.slurm, pytest.mark.slow]


@contextmanager
def seen_on(lab: Lab, node: str, path: Path, *source: str) -> Iterator[None]:
    """Mount something else over a path on one node while the block runs."""
    lab.on_node(node, "mount", *source, str(path))
    try:
        yield
    finally:
        lab.on_node(node, "umount", str(path))


def assert_refused(lab: Lab, job: str, line: str) -> None:
    """Assert that both nodes print the line without a traceback, and that the job fails for good."""
    lab.wait(job, "FAILED")
    assert lab.status(job) == "FAILED"
    messages = lab.torchx("log", "--regex", "^elasticqa: ", f"slurm://torchx/{job}").stdout.splitlines()
    assert len(messages) == 2
    assert all(line in message for message in messages)
    assert "Traceback" not in lab.logs(job)
    assert training.runs(lab.home) == []


def test_nodes_with_another_torch_are_refused(lab: Lab, flags: list[str], tmp_path: Path) -> None:
    path = Path(torch.__file__).with_name("version.py")
    other = tmp_path / "version.py"
    other.write_text(path.read_text().replace(f"'{torch.__version__}'", "'1.0'"), encoding="utf-8")
    with seen_on(lab, "node2", path, "--bind", str(other)):
        job = lab.submit("components/train.py:ddp", "--nnodes", "2", "--", *flags)
        assert_refused(lab, job, f"torch is {torch.__version__} on node1 and 1.0 on node2: ")


def test_home_that_the_nodes_do_not_share_is_refused(lab: Lab, flags: list[str]) -> None:
    # The logs can be written on both nodes, but the file of the first node is not on the second.
    (lab.home / "slurm").mkdir(parents=True)
    with seen_on(lab, "node2", lab.home / "slurm", "-t", "tmpfs", "none"):
        job = lab.submit("components/train.py:ddp", "--nnodes", "2", "--", *flags)
        lab.wait(job, "FAILED")
        lab.on_node("node2", "test", "-e", str(lab.home / "slurm" / f"{job}-1.log"))
    (line,) = (text for text in lab.logs(job).splitlines() if text.startswith("elasticqa: "))
    assert f"{lab.home} is not the same directory on node1 and node2" in line
    assert training.runs(lab.home) == []


def test_home_that_a_node_does_not_have_is_refused(lab: Lab, flags: list[str]) -> None:
    lab.home.mkdir()
    with seen_on(lab, "node2", lab.home, "-t", "tmpfs", "none"):
        job = lab.submit("components/train.py:ddp", "--nnodes", "2", "--", *flags)
        lab.wait(job, "FAILED")
    assert f"{lab.home}/slurm cannot be written on node2" in lab.torchx("log", f"slurm://torchx/{job}/ddp/0").stdout


def test_node_that_does_not_find_the_first_by_name_is_refused(lab: Lab, flags: list[str], tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n10.77.77.12 node2\n", encoding="utf-8")
    with seen_on(lab, "node2", Path("/etc/hosts"), "--bind", str(hosts)):
        job = lab.submit("components/train.py:ddp", "--nnodes", "2", "--", *flags)
        assert_refused(lab, job, "node2 cannot resolve the name node1")


def test_gpus_that_slurm_gives_and_torch_does_not_see_are_refused(lab: Lab, flags: list[str]) -> None:
    job = lab.submit("components/train.py:ddp", "--nnodes", "2", "--gpu", "1", "--", *flags)
    assert_refused(lab, job, "gpu=1 but torch")


def test_good_cluster_passes_the_check_job(lab: Lab) -> None:
    done = lab.doctor()
    assert done.returncode == 0, done.stdout + done.stderr
    found = {finding["check"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert {name: finding["status"] for name, finding in found.items()} == dict.fromkeys(
        ("slurm", "home", "versions", "names", "clock", "all-reduce"), "ok"
    )
    assert found["names"]["found"] == "node1 is 10.77.77.11; node2 is 10.77.77.12"
    assert "over eth0" in found["all-reduce"]["found"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--partition=nope"], "Invalid partition name specified"),
        (["--gpu=2"], "Requested node configuration is not available"),
        (["--gpu=1"], "node1 sees 0 of 1 GPUs"),
    ],
)
def test_impossible_check_job_fails_in_one_line(options: list[str], expected: str, lab: Lab) -> None:
    done = lab.doctor(*options)
    assert done.returncode == 1
    failed = [finding for finding in json.loads(done.stdout)["findings"] if finding["status"] == "fail"]
    assert len(failed) == 1
    assert expected in failed[0]["found"]
    assert "Traceback" not in done.stderr


def test_check_job_in_a_full_cluster_is_cancelled(lab: Lab) -> None:
    other = lab.out(
        "sbatch", "--parsable", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 300"
    ).strip()
    until(lambda: lab.state(other) == "RUNNING", "the other job")
    try:
        done = lab.doctor("--wait=10")
    finally:
        lab.out("scancel", other)
        lab.wait(other, "CANCELLED")
    assert done.returncode == 1
    assert "did not start within 10 s and is cancelled: PENDING (Resources)" in done.stdout
    assert "PENDING (Resources)" in done.stderr


def test_check_job_detects_a_home_that_is_not_shared(lab: Lab) -> None:
    lab.home.mkdir()
    with seen_on(lab, "node2", lab.home, "-t", "tmpfs", "none"):
        done = lab.doctor()
    assert done.returncode == 1
    assert "node2 does not see a file written here" in done.stdout
