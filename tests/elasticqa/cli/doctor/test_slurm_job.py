"""The check job on the login node, with fake Slurm commands."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from elasticqa.cli.doctor.command import main
from elasticqa.cli.doctor.finding import Finding
from elasticqa.cli.doctor.slurm_job import MARKER, run_check_job
from tests.support.nodes import MEASUREMENT, node_message

ANSWERS = "; ".join(
    f"echo '{MARKER}{json.dumps(message)}'" for message in (node_message(0), node_message(1), MEASUREMENT)
)
WRITES = 'for mark; do :; done; touch "$ELASTICQA_HOME/slurm/$mark-0" "$ELASTICQA_HOME/slurm/$mark-1"'
RUNS = f"{WRITES}; {ANSWERS}"
WAITS = 'until [ -e "$0.end" ]; do /bin/sleep 0.1; done; exit 1'


def cluster(folder: Path, srun: str, queue: str = "true") -> dict[str, str]:
    """Write Slurm's commands and return the environment that finds them."""
    texts = {"srun": f'echo "$@" > "$0.asked"; env > "$0.env"; {srun}', "squeue": queue}
    for name, text in {**texts, "scancel": 'echo "$@" > "$0.asked"; touch "${0%scancel}srun.end"'}.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (folder / name).chmod(0o755)
    path = f"{folder}:/usr/bin:/bin"
    return {"PATH": path, "SLURM_CONF": "/c", "ELASTICQA_HOME": str(folder / "home"), "SLURM_JOB_ID": "3"}


def findings(environ: dict[str, str], *flags: str, wait_s: float = 30.0, log: list[str] | None = None) -> list[Finding]:
    return run_check_job(flags, 0, wait_s, environ, (log if log is not None else []).append)


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the fake commands on the PATH of this process, which subprocess searches."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def test_job_that_runs_returns_findings_and_leaves_no_files(tmp_path: Path) -> None:
    environ = cluster(tmp_path, RUNS)
    found = findings(environ, "--partition=gpu")
    assert [finding.status for finding in found] == ["ok"] * 6
    asked = (tmp_path / "srun.asked").read_text().split()
    assert {"--nodes=2", "--ntasks-per-node=1", "--partition=gpu"} <= set(asked)
    # Inside an allocation it is still a job of its own.
    assert "SLURM_JOB_ID" not in (tmp_path / "srun.env").read_text()
    assert list((tmp_path / "home" / "slurm").iterdir()) == []


@pytest.mark.parametrize("missing", ["srun", "squeue", "scancel"])
def test_machine_without_slurm_is_a_failure(missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {**cluster(tmp_path, RUNS), "PATH": str(tmp_path)}
    (tmp_path / missing).unlink()
    (finding,) = findings(environ)
    assert (finding.status, finding.found) == ("fail", f"{missing} not on PATH")


def test_home_that_cannot_be_written_is_a_failure(tmp_path: Path) -> None:
    environ = cluster(tmp_path, RUNS)
    (tmp_path / "home").write_text("", encoding="utf-8")
    (finding,) = findings(environ)
    assert (finding.check, finding.status) == ("home", "fail")


def test_refusal_of_slurm_is_shown_with_the_request(tmp_path: Path) -> None:
    refuses = "echo 'srun: error: invalid partition specified: nope' >&2; exit 1"
    (finding,) = findings(cluster(tmp_path, refuses), "--partition=nope")
    assert finding.found == ("srun exits with 1: invalid partition specified: nope; requested 2 nodes --partition=nope")


def test_end_of_a_traceback_is_shown(tmp_path: Path) -> None:
    fails = (
        "echo 'srun: job 5 queued and waiting for resources' >&2; echo 'Traceback (most recent call last):' >&2; "
        "echo 'ModuleNotFoundError: torch' >&2; echo 'srun: error: n2: task 1: Exited with exit code 1' >&2; exit 1"
    )
    (finding,) = findings(cluster(tmp_path, fails))
    assert finding.found == "srun exits with 1: ModuleNotFoundError: torch; requested 2 nodes"


def test_pending_job_is_logged_and_cancelled_at_the_deadline(tmp_path: Path) -> None:
    log: list[str] = []
    (finding,) = findings(cluster(tmp_path, WAITS, "echo '9|PENDING|Priority'"), wait_s=0.0, log=log)
    assert log == ["job 9 on 2 nodes: PENDING (Priority)"]
    assert finding.found == "job 9 did not start within 0 s and is cancelled: PENDING (Priority)"
    assert (tmp_path / "scancel.asked").read_text().startswith("--name=doctor-")


def test_job_that_can_never_start_is_cancelled_at_once(tmp_path: Path) -> None:
    (finding,) = findings(cluster(tmp_path, WAITS, "echo '9|PENDING|PartitionConfig'"), "--qos=x")
    assert "cannot start (PartitionConfig) and is cancelled: requested 2 nodes --qos=x" in finding.found
    assert (tmp_path / "scancel.asked").exists()


def test_options_come_from_the_command_line_and_then_from_torchxconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".torchxconfig").write_text("[slurm]\npartition = slow\naccount = me%you\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    environ = cluster(tmp_path, RUNS)
    assert main(["--slurm", "--partition=gpu", "--gpu=2", "--json"], environ) == 0
    asked = (tmp_path / "srun.asked").read_text().split()
    assert {"--partition=gpu", "--account=me%you", "--gpus-per-node=2"} <= set(asked)
    assert len(json.loads(capsys.readouterr().out)["findings"]) == 7
    assert main(["--slurm", "--gpu=2", "--gres=gpu:a100:2"], environ) == 0
    assert "--gpus-per-node" not in (tmp_path / "srun.asked").read_text()


def test_torchxconfig_that_is_broken_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".torchxconfig").write_text("partition = slow\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["--slurm"], cluster(tmp_path, RUNS)) == 1
    assert ".torchxconfig cannot be read" in capsys.readouterr().out


def test_command_needs_no_torch_on_the_login_node() -> None:
    code = "import sys, elasticqa.cli.doctor.command; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
