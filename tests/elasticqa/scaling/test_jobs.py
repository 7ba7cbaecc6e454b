import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from elasticqa.errors import ConfigError
from elasticqa.scaling.jobs import Jobs, check_machine, component_arguments, is_alive, job_name
from elasticqa.scaling.matrix import REFERENCE, Cell, Slot
from elasticqa.scaling.study import StudyRun
from tests.support.scaling import MATRIX

RUN_ID = "01KB0000000000000000000000"
CELL = Cell(strategy="ddp", num_nodes=2, nproc_per_node=4)


def arguments_of(cell: Cell, *, gpus: bool = False) -> dict[str, str]:
    words = component_arguments(replace(MATRIX, gpus=gpus, cpus_per_process=3), cell, RUN_ID)
    return dict(zip(words[::2], words[1::2], strict=True))


def test_every_process_has_the_same_resources() -> None:
    one, eight = arguments_of(REFERENCE, gpus=True), arguments_of(CELL, gpus=True)
    assert (one["--cpu"], one["--gpu"], one["--memMB"]) == ("3", "1", "1024")
    assert (eight["--cpu"], eight["--gpu"], eight["--memMB"]) == ("12", "4", "4096")
    assert one["--env"] == eight["--env"] == f"ELASTICQA_RUN_ID={RUN_ID},OMP_NUM_THREADS=3"


def test_launch_arguments_are_those_of_the_component() -> None:
    arguments = arguments_of(CELL)
    assert (arguments["--nnodes"], arguments["--nproc_per_node"], arguments["--gpu"]) == ("2", "4", "0")
    assert "--nnodes" not in arguments_of(REFERENCE)


def test_job_name_fits_the_limit_of_the_scheduler() -> None:
    longest = Cell(strategy="fsdp", num_nodes=10_000, nproc_per_node=10_000, scale=10**8)
    assert len(job_name(longest, RUN_ID)) <= 64


def test_unknown_option_of_the_scheduler_is_refused(tmp_path: Path) -> None:
    for cfg in ("partition=gpu", "log_dir"):
        with pytest.raises(ConfigError, match=f"-cfg '{cfg}' is not an option of local_cwd"):
            Jobs(replace(MATRIX, cfg=cfg), tmp_path)


def test_missing_slurm_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    matrix = replace(MATRIX, scheduler="slurm")
    with Jobs(matrix, tmp_path) as jobs, pytest.raises(ConfigError, match="sbatch is not on PATH"):
        jobs.submit(StudyRun(Slot(CELL, 1), RUN_ID), matrix.flags)


def test_too_few_cpus_are_a_warning_and_too_few_gpus_an_error() -> None:
    assert check_machine(replace(MATRIX, nodes=(1,)), num_cpus=2) == []
    (shared,) = check_machine(replace(MATRIX, nodes=(1,)), num_cpus=1)
    assert "2 processes of 1 CPUs need more than the 1 CPUs of this machine" in shared
    (network,) = check_machine(MATRIX, num_cpus=4)
    assert "the network is not measured" in network
    assert check_machine(replace(MATRIX, scheduler="slurm", gpus=True), num_cpus=1) == []
    with pytest.raises(ConfigError, match="--gpus with 1024 processes"):
        check_machine(replace(MATRIX, nodes=(1,), nproc_per_node=(1024,), gpus=True), num_cpus=4096)


def test_process_of_a_run_is_found_by_its_run_id() -> None:
    assert not is_alive(RUN_ID)
    command = [sys.executable, "-c", "print(flush=True); input()"]
    environment = {**os.environ, "ELASTICQA_RUN_ID": RUN_ID}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert is_alive(RUN_ID)
        process.communicate(b"\n")
    assert not is_alive(RUN_ID)


def test_last_message_prefers_our_errors_over_others(tmp_path: Path) -> None:
    run = StudyRun(Slot(CELL, 1), RUN_ID)
    with Jobs(MATRIX, tmp_path) as jobs:
        assert jobs.last_message(run, tmp_path) == ""
        log = tmp_path / "torchx" / "app" / job_name(CELL, RUN_ID) / "0" / "stderr.log"
        log.parent.mkdir(parents=True)
        log.write_text("elasticqa: dataset cannot be found\nTraceback of others\n\n")
        assert jobs.last_message(run, tmp_path) == "dataset cannot be found"
        log.write_text("ValueError: x is 3\ntorch.elastic.ChildFailedError: \n====\ntrain FAILED\n====\n")
        assert jobs.last_message(run, tmp_path) == "ValueError: x is 3"
        log.write_text("Killed\n====\n")
        assert jobs.last_message(run, tmp_path) == "Killed"
