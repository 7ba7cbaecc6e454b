"""The scheduler as TorchX calls it: submission, state, list, cancel and logs; stand-ins print what Slurm prints."""

import json
from pathlib import Path

import pytest
from torchx import specs
from torchx.schedulers.api import Stream
from torchx.specs import AppState

from components.slurm.jobs import SlurmError
from components.slurm.scheduler import SlurmScheduler, create_scheduler, logs_dir, submission_environment
from tests.support.slurm_commands import FORGOTTEN, answer, install, submitted

APP = specs.AppDef(
    "job", [specs.Role(name="job", image="", entrypoint="true", resource=specs.Resource(cpu=1, gpu=0, memMB=10))]
)


@pytest.fixture
def slurm(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of commands, which may call those of the system."""
    monkeypatch.setenv("PATH", f"{slurm}:/usr/bin:/bin")
    return slurm


@pytest.fixture
def scheduler(slurm: Path, tmp_path: Path) -> SlurmScheduler:
    return SlurmScheduler("session", tmp_path / "logs")


def log(scheduler: SlurmScheduler, text: str, job: str = "7", node: int = 0) -> None:
    scheduler.logs.mkdir(exist_ok=True)
    (scheduler.logs / f"{job}-{node}.log").write_text(text, encoding="utf-8")


def test_submitted_job_is_known_by_its_number(slurm: Path, scheduler: SlurmScheduler, tmp_path: Path) -> None:
    install(slurm, "sbatch", f'cat > "{tmp_path}/script"; echo "$@" > "{tmp_path}/flags"; echo "42;cluster"')
    assert scheduler.submit(APP, {"partition": "gpu"}) == "42"
    assert (tmp_path / "script").read_text().startswith("#!/bin/bash\n")
    flags = (tmp_path / "flags").read_text().split()
    assert {"--partition=gpu", "--signal=USR1@120", "--nodes=1-1"} <= set(flags)
    assert json.loads((scheduler.logs / "42.json").read_text())["name"] == "job"


def test_refusal_of_sbatch_is_shown_with_the_command(slurm: Path, scheduler: SlurmScheduler) -> None:
    install(slurm, "sbatch", "echo 'sbatch: error: invalid partition specified: nope' >&2; exit 1")
    with pytest.raises(
        SlurmError, match=r"sbatch refuses the job: invalid partition.*\.torchxconfig.*--partition=nope"
    ):
        scheduler.submit(APP, {"partition": "nope"})
    assert list(scheduler.logs.iterdir()) == []


def test_job_that_can_never_start_is_cancelled_and_refused(
    slurm: Path, scheduler: SlurmScheduler, tmp_path: Path
) -> None:
    install(slurm, "sbatch", "echo 42")
    install(slurm, "scancel", f'echo "$@" > "{tmp_path}/cancelled"')
    answer(slurm, "squeue", "42|PENDING|3|(PartitionConfig)|0|job|")
    with pytest.raises(SlurmError, match=r"job 42 would wait forever \(PartitionConfig\)"):
        scheduler.submit(APP, {})
    assert (tmp_path / "cancelled").read_text() == "42\n"
    answer(slurm, "squeue", "42|PENDING|3|(Resources)|0|job|")
    assert scheduler.submit(APP, {}) == "42"


def test_machine_without_sbatch_is_refused(
    scheduler: SlurmScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SlurmError, match="sbatch is not on PATH"):
        scheduler.submit(APP, {})


def test_unwritable_log_directory_is_refused(slurm: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(SlurmError, match=r"cannot be created.*ELASTICQA_HOME"):
        SlurmScheduler("session", tmp_path / "file" / "slurm").submit(APP, {})


def test_unknown_option_type_is_refused_by_torchx(scheduler: SlurmScheduler) -> None:
    with pytest.raises(specs.InvalidRunConfigException, match="time"):
        scheduler.submit(APP, {"time": 10})


def test_description_has_state_nodes_and_restarts(slurm: Path, scheduler: SlurmScheduler) -> None:
    answer(slurm, "squeue", "7|RUNNING|2|node[1-2]|3|ddp|")
    described = scheduler.describe("7")
    assert described is not None
    assert (described.state, described.num_restarts) == (AppState.RUNNING, 3)
    assert described.msg == "RUNNING node[1-2]"
    assert [(role.name, role.num_replicas) for role in described.roles] == [("ddp", 2)]
    assert [replica.id for replica in described.roles_statuses[0].replicas] == [0, 1]


def test_unknown_job_does_not_exist_and_is_not_cancelled(slurm: Path, scheduler: SlurmScheduler) -> None:
    install(slurm, "scancel", "echo called; exit 1")
    assert scheduler.describe("7") is None
    scheduler.cancel("7")


def test_refused_cancel_is_an_error(slurm: Path, scheduler: SlurmScheduler) -> None:
    answer(slurm, "squeue", "7|RUNNING|2|node[1-2]|3|ddp|")
    install(slurm, "scancel", "echo 'scancel: error: Access/permission denied' >&2; exit 1")
    with pytest.raises(SlurmError, match=r"job 7 cannot be cancelled: .*permission denied"):
        scheduler.cancel("7")


def test_list_has_torchx_states(slurm: Path, scheduler: SlurmScheduler) -> None:
    answer(slurm, "squeue", "7|PENDING|2||0|ddp|", "8|COMPLETED|2||0|ddp|")
    assert [(app.app_id, app.state) for app in scheduler.list()] == [("7", AppState.PENDING), ("8", AppState.SUCCEEDED)]


def test_log_is_that_of_the_requested_node(slurm: Path, scheduler: SlurmScheduler) -> None:
    log(scheduler, "one\ntwo\n")
    log(scheduler, "three\nunfinished", node=1)
    assert list(scheduler.log_iter("7", "job")) == ["one\n", "two\n"]
    assert list(scheduler.log_iter("7", "job", 1)) == ["three\n", "unfinished"]
    assert list(scheduler.log_iter("7", "job", regex="^t")) == ["two\n"]
    assert list(scheduler.log_iter("7", "job", streams=Stream.COMBINED)) == ["one\n", "two\n"]


def test_job_without_a_log_names_the_batch_log(slurm: Path, scheduler: SlurmScheduler) -> None:
    (line,) = scheduler.log_iter("7", "job")
    assert "7-batch.log" in line


def test_followed_log_has_the_last_lines_of_the_job(slurm: Path, scheduler: SlurmScheduler) -> None:
    log(scheduler, "one\n")
    submitted(scheduler.logs, "7", 0)
    path = scheduler.logs / "7-0.log"
    path.write_text("one\nun", encoding="utf-8")
    # The job writes during the first query and is over at the second.
    first = f"printf 'finished\\nlast' >> '{path}'; printf '7|RUNNING|1|n|0|job|\\n'; : > \"$0.asked\""
    install(slurm, "squeue", f'if [ -e "$0.asked" ]; then {FORGOTTEN}; fi; {first}')
    seen = list(scheduler.log_iter("7", "job", should_tail=True))
    assert seen == ["one\n", "unfinished\n", "last"]


@pytest.mark.parametrize("stream", [Stream.STDOUT, Stream.STDERR])
def test_single_stream_is_refused(stream: Stream, scheduler: SlurmScheduler) -> None:
    with pytest.raises(SlurmError, match="both streams"):
        scheduler.log_iter("7", "job", streams=stream)


def test_logs_are_in_the_home_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ELASTICQA_HOME", str(tmp_path))
    assert create_scheduler("session").logs == logs_dir() == tmp_path / "slurm"
    assert logs_dir({}).is_absolute()


def test_variables_of_an_allocation_are_not_passed_to_the_job() -> None:
    shell = {"SLURM_JOB_ID": "1", "SLURM_MEM_PER_NODE": "5", "SLURM_CONF": "/c", "SBATCH_ACCOUNT": "a", "PATH": "/bin"}
    assert submission_environment(shell) == {"SLURM_CONF": "/c", "SBATCH_ACCOUNT": "a", "PATH": "/bin"}
