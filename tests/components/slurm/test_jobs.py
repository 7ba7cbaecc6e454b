"""State of jobs from the controller, accounting and files, with fake Slurm commands."""

from pathlib import Path

import pytest
from torchx.specs import AppState

from components.slurm import jobs
from components.slurm.jobs import SlurmError
from tests.support.slurm_commands import answer, install, submitted


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("PENDING", AppState.PENDING),
        ("CONFIGURING", AppState.PENDING),
        ("REQUEUED", AppState.PENDING),
        ("SUSPENDED", AppState.PENDING),
        ("RUNNING", AppState.RUNNING),
        ("COMPLETING", AppState.RUNNING),
        ("COMPLETED", AppState.SUCCEEDED),
        ("CANCELLED", AppState.CANCELLED),
        ("FAILED", AppState.FAILED),
        ("TIMEOUT", AppState.FAILED),
        ("NODE_FAIL", AppState.FAILED),
        ("OUT_OF_MEMORY", AppState.FAILED),
        ("PREEMPTED", AppState.FAILED),
        ("A_NEW_WORD", AppState.UNKNOWN),
    ],
)
def test_state_comes_from_the_controller(state: str, expected: AppState, slurm: Path, tmp_path: Path) -> None:
    answer(slurm, "squeue", f"7|{state}|2|node[1-2]|1|ddp|")
    assert jobs.find("7", tmp_path) == jobs.Job("7", state, 2, "ddp", "node[1-2]", 1)
    assert jobs.Job("7", state, 2, "ddp").app_state == expected


def found(logs: Path) -> jobs.Job:
    """Return the only job that is looked for, which must be known."""
    job = jobs.find("7", logs)
    assert job is not None
    return job


def test_pending_job_has_its_maximum_number_of_nodes(slurm: Path, tmp_path: Path) -> None:
    answer(slurm, "squeue", "7|PENDING|1-4|Priority|0|ddp|")
    job = found(tmp_path)
    assert (job.num_nodes, job.detail) == (4, "Priority")


@pytest.mark.parametrize(
    ("state", "expected"), [("CANCELLED by 1000", AppState.CANCELLED), ("COMPLETED", AppState.SUCCEEDED)]
)
def test_accounting_has_jobs_that_the_controller_forgot(
    state: str, expected: AppState, slurm: Path, tmp_path: Path
) -> None:
    answer(slurm, "sacct", f"7|{state}|2|ddp")
    job = found(tmp_path)
    assert (job.app_state, job.num_nodes, job.name) == (expected, 2, "ddp")


@pytest.mark.parametrize(
    ("status", "expected"), [(0, AppState.SUCCEEDED), (3, AppState.FAILED), (None, AppState.CANCELLED)]
)
def test_files_have_jobs_that_slurm_forgot(status: int | None, expected: AppState, slurm: Path, tmp_path: Path) -> None:
    submitted(tmp_path, "7", status)
    job = found(tmp_path)
    assert (job.app_state, job.num_nodes, job.name) == (expected, 2, "ddp")


def test_machine_without_accounting_command_is_enough(slurm: Path, tmp_path: Path) -> None:
    (slurm / "sacct").unlink()
    submitted(tmp_path, "7", 0)
    assert found(tmp_path).state == "COMPLETED"


@pytest.mark.parametrize("job", ["8", "x", "../7", "7_1", ""])
def test_unknown_job_is_none(job: str, slurm: Path, tmp_path: Path) -> None:
    submitted(tmp_path, "7", 0)
    assert jobs.find(job, tmp_path) is None


def test_silent_controller_is_an_error(slurm: Path, tmp_path: Path) -> None:
    install(slurm, "squeue", "echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1")
    with pytest.raises(SlurmError, match="Unable to contact slurm controller"):
        jobs.find("7", tmp_path)
    with pytest.raises(SlurmError, match="cannot be listed"):
        jobs.find_all(tmp_path)


def test_list_is_sorted_and_the_controller_wins_over_accounting(slurm: Path, tmp_path: Path) -> None:
    answer(slurm, "squeue", "9|RUNNING|2|node[1-2]|1|ddp|", "10|PENDING|1|Resources|0|fsdp|")
    answer(slurm, "sacct", "9|NODE_FAIL|2|ddp", "8|TIMEOUT|1|ddp", "8.batch|TIMEOUT|1|batch")
    submitted(tmp_path, "7", 0)
    submitted(tmp_path, "9", 143)
    listed = [(job.job_id, job.state) for job in jobs.find_all(tmp_path)]
    assert listed == [("7", "COMPLETED"), ("8", "TIMEOUT"), ("9", "RUNNING"), ("10", "PENDING")]


def test_machine_without_slurm_is_refused_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SlurmError, match=r"squeue is not on PATH.*login node.*local_cwd"):
        jobs.find("7", tmp_path)
