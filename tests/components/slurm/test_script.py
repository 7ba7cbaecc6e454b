"""The sbatch flags and the batch script of an application; the script runs with fake Slurm commands."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from torchx import specs

from components.slurm.jobs import SlurmError
from components.slurm.script import JobRequest, job_request

HOSTILE = 'it\'s a "test", $HOME `id` \\ ü\nsecond line; * %j'


def app(*args: str, entrypoint: str = "printf", env: dict[str, str] | None = None, **role: Any) -> specs.AppDef:
    """Return an application with one role, by default one node without resources."""
    given = {"name": "job", "num_replicas": 1, "resource": specs.Resource(cpu=0, gpu=0, memMB=0), **role}
    return specs.AppDef("job", [specs.Role(image="", entrypoint=entrypoint, args=list(args), env=env or {}, **given)])


def request(application: specs.AppDef, logs: Path = Path("/logs"), **config: object) -> JobRequest:
    return job_request(application, config, logs)


def fake_command(directory: Path, name: str, text: str) -> None:
    (directory / name).write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
    (directory / name).chmod(0o755)


def run(job: JobRequest, tmp_path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a batch script with fake Slurm commands, which start one task with number RANK and log their calls."""
    two_hosts = (
        '[ "$2" = hostnames ] || exit 0; case "$3" in *\\[3-4\\]) printf "node3\\nnode4\\n";; *) echo "$3";; esac'
    )
    fake_command(tmp_path, "scontrol", f'echo "$@" >> "$CALLS"; {two_hosts}')
    fake_command(tmp_path, "sbatch", 'env > "$0.env"; cat > "$0.script"; echo sbatch "$@" >> "$CALLS"')
    if not (tmp_path / "squeue").exists():
        fake_command(tmp_path, "squeue", "echo 2026-11-28T03:35:30")
    fake_command(tmp_path, "scancel", 'echo scancel "$@" >> "$CALLS"')
    skip_options = 'while [ "$1" != bash ]; do shift; done'
    print_message = 'case "$*" in *--wait=0*) [ -n "$MESSAGE" ] && echo "$MESSAGE" >&2;; esac'
    if not (tmp_path / "srun").exists():
        fake_command(
            tmp_path, "srun", f'echo "$@" >> "$CALLS"; {print_message}; {skip_options}; SLURM_PROCID=$RANK "$@"'
        )
    environ = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "CALLS": str(tmp_path / "calls"),
        "RANK": "1",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "node[3-4]",
        "SLURM_JOB_NUM_NODES": "2",
        **variables,
    }
    return subprocess.run(
        ["bash"], input=job.script, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False
    )


def calls(tmp_path: Path) -> str:
    return (tmp_path / "calls").read_text()


def test_elastic_job_survives_lost_nodes() -> None:
    command = request(app(num_replicas=4, min_replicas=2)).command
    assert {"--nodes=2-4", "--no-kill", "--requeue", "--open-mode=append"} <= set(command)
    assert not any(flag.startswith("--ntasks") for flag in command)


def test_job_that_needs_all_nodes_ends_with_a_lost_one() -> None:
    command = request(app(num_replicas=2)).command
    assert "--nodes=2-2" in command
    assert "--no-kill" not in command


def test_resources_are_per_node() -> None:
    command = request(app(resource=specs.Resource(cpu=8, gpu=2, memMB=1000))).command
    assert {"--cpus-per-task=8", "--mincpus=8", "--mem=1000M", "--gpus-per-node=2"} <= set(command)


def test_gpus_by_type_replace_their_number() -> None:
    command = request(app(resource=specs.Resource(cpu=8, gpu=2, memMB=1000)), gres="gpu:a100:2").command
    assert "--gres=gpu:a100:2" in command
    assert not any(flag.startswith("--gpus") for flag in command)


def test_each_option_is_one_flag_whatever_its_value() -> None:
    command = request(app(), time="10 --nodes=9", account="lab", qos=None).command
    assert "--time=10 --nodes=9" in command
    assert "--account=lab" in command
    assert not any(flag.startswith("--qos") for flag in command)


def test_arguments_and_variables_reach_the_task_unchanged(tmp_path: Path) -> None:
    code = 'printf "%s|" "$VALUE" "$@"'
    done = run(
        request(app("-c", code, "name", HOSTILE, "", entrypoint="bash", env={"VALUE": HOSTILE}), tmp_path), tmp_path
    )
    assert done.stdout == f"{HOSTILE}|{HOSTILE}||"
    assert done.returncode == 0


def test_macros_are_replaced_by_job_task_and_first_host(tmp_path: Path) -> None:
    macros = specs.macros
    application = app(
        "-c",
        'echo "${!0}"; echo "$ID $1"',
        macros.rank0_env,
        f"replica {macros.replica_id}",
        entrypoint="bash",
        env={"ID": f"slurm://x/{macros.app_id}"},
    )
    assert run(request(application, tmp_path), tmp_path).stdout == "node3\nslurm://x/7 replica 1\n"


def test_task_has_the_start_time_of_its_job(tmp_path: Path) -> None:
    application = app("-c", 'echo "$SLURM_JOB_START_TIME"', entrypoint="bash")
    done = run(request(application, tmp_path), tmp_path, SLURM_JOB_START_TIME="5")
    assert float(done.stdout) > 1e9


def test_task_has_the_submission_time_of_its_job(tmp_path: Path) -> None:
    application = app("-c", 'echo "$SLURM_JOB_SUBMIT_TIME"', entrypoint="bash")
    assert run(request(application, tmp_path), tmp_path, TZ="UTC").stdout == "1795836930\n"
    fake_command(tmp_path, "squeue", "exit 1")
    assert run(request(application, tmp_path), tmp_path, TZ="UTC").stdout == "\n"


@pytest.mark.parametrize("status", [0, 1, 2, 137, 138])
def test_exit_status_of_the_tasks_is_that_of_the_job(status: int, tmp_path: Path) -> None:
    done = run(request(app("-c", f"exit {status}", entrypoint="bash", max_retries=5), tmp_path), tmp_path)
    assert done.returncode == status
    assert (tmp_path / "7.exit").read_text() == f"{status}\n"
    assert "requeue" not in calls(tmp_path)


def test_stopped_tasks_restart_the_job_up_to_the_limit(tmp_path: Path) -> None:
    job = request(app("-c", "exit 143", entrypoint="bash", max_retries=2), tmp_path)
    assert run(job, tmp_path, SLURM_RESTART_COUNT="1").returncode == 143
    assert calls(tmp_path).splitlines()[-1] == "requeue 7"
    (tmp_path / "calls").unlink()
    done = run(job, tmp_path, SLURM_RESTART_COUNT="2")
    assert "requeue" not in calls(tmp_path)
    assert "not requeued" in done.stderr


def test_end_of_one_task_does_not_end_the_others(tmp_path: Path) -> None:
    run(request(app("x"), tmp_path), tmp_path)
    (step,) = (line for line in calls(tmp_path).splitlines() if "--wait=0" in line)
    assert {"--no-kill", "--kill-on-bad-exit=0", "--wait=0", "--ntasks=2", "--ntasks-per-node=1"} <= set(step.split())


def test_log_directory_missing_on_a_node_fails_the_job_with_one_line(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    job = request(app("x", num_replicas=2), logs)
    # The node of the tasks has another file system.
    fake_command(
        tmp_path,
        "srun",
        f'mv "{logs}" "{logs}.away"; while [ "$1" != bash ]; do shift; done; "$@"; mv "{logs}.away" "{logs}"',
    )
    done = run(job, tmp_path, SLURMD_NODENAME="node4")
    assert done.returncode == 2
    assert (logs / "7.exit").read_text() == "2\n"
    assert (logs / "7-0.log").read_text() == done.stdout
    assert done.stdout.startswith(f"{logs} cannot be written on node4: all nodes need one home directory")
    assert len(done.stdout.splitlines()) == 1


def test_lost_node_does_not_disturb_the_other_tasks(tmp_path: Path) -> None:
    job = request(app("x", num_replicas=2, min_replicas=1), tmp_path)
    done = run(job, tmp_path, RANK="0", MESSAGE="srun: error: something else")
    assert done.stderr == "srun: error: something else\n"
    assert "show hostnames node4" not in calls(tmp_path)
    done = run(job, tmp_path, RANK="0", MESSAGE="srun: error: Node failure on node4")
    assert done.stderr == "srun: error: Node failure on node4\n"
    assert "show hostnames node4\n" in calls(tmp_path)
    assert "scancel --signal" not in calls(tmp_path)


def test_job_with_too_few_nodes_left_is_requeued(tmp_path: Path) -> None:
    job = request(app("x", num_replicas=3, min_replicas=2), tmp_path)
    run(job, tmp_path, RANK="0", MESSAGE="srun: error: Node failure on n[3-4]")
    assert "requeue 7" in calls(tmp_path)
    assert "scancel --signal" not in calls(tmp_path)


@pytest.mark.parametrize(
    ("nodes", "rank", "is_requeued"),
    [("node4", "1", True), ("node3", "1", False), ("", "1", False), ("node4", "0", False)],
)
def test_other_nodes_requeue_an_elastic_job_that_lost_its_first_node(
    nodes: str, rank: str, is_requeued: bool, tmp_path: Path
) -> None:
    """The task runs until the watcher has queried Slurm; the third call of the fake `sleep` ends the watcher."""
    fake_command(tmp_path, "squeue", f'echo "{nodes}"')
    fake_command(tmp_path, "sleep", '[ -e "$0.b" ] && exit 1; [ -e "$0.a" ] && : > "$0.b"; : > "$0.a"')
    wait = f"[ {rank} = 0 ] || until [ -e {tmp_path}/sleep.b ]; do :; done"
    job = request(app("-c", wait, entrypoint="bash", num_replicas=2, min_replicas=1), tmp_path)
    run(job, tmp_path, RANK=rank)
    assert ("requeue 7" in calls(tmp_path)) == is_requeued


def test_elastic_job_submits_a_job_for_each_missing_node(tmp_path: Path) -> None:
    job = request(app("x y", num_replicas=4, min_replicas=1), tmp_path, partition="gpu", exclude="node9")
    run(job, tmp_path, RANK="0", SLURM_MEM_PER_NODE="5", SLURM_CONF="/c")
    asked = [line.split() for line in calls(tmp_path).splitlines() if line.startswith("sbatch ")]
    assert len(asked) == 2
    for flags in asked:
        assert {"--nodes=1", "--requeue", "--partition=gpu", "--job-name=job-joins-7"} <= set(flags)
        assert flags.index("--exclude=node3,node4,node9") > flags.index("--exclude=node9")
    environ = dict(line.partition("=")[::2] for line in (tmp_path / "sbatch.env").read_text().splitlines())
    assert {name for name in environ if name.startswith("SLURM_")} == {"SLURM_CONF"}
    assert (environ["TORCHX_JOINED_JOB"], environ["TORCHX_JOINED_LIFE"]) == ("7", "0")
    assert environ["TORCHX_RANK0_HOST"] == "node3"
    assert environ["TORCHX_JOINED_LOG"] == f"{tmp_path}/7-3.log"
    assert calls(tmp_path).splitlines()[-1] == "scancel --state=PENDING --name=job-joins-7"


def test_lost_node_is_requested_again(tmp_path: Path) -> None:
    job = request(app("x", num_replicas=2, min_replicas=1), tmp_path)
    run(job, tmp_path, RANK="0", MESSAGE="srun: error: Node failure on node4")
    (asked,) = (line for line in calls(tmp_path).splitlines() if line.startswith("sbatch "))
    # The lost node may be used again, the remaining one not.
    assert "--exclude=node3 " in asked
    # Jobs that are pending at the end of the tasks are cancelled.
    assert calls(tmp_path).splitlines()[-1] == "scancel --state=PENDING --name=job-joins-7"


def test_job_that_needs_all_nodes_requests_no_others(tmp_path: Path) -> None:
    run(request(app("x", num_replicas=4), tmp_path), tmp_path)
    assert "sbatch" not in calls(tmp_path)


@pytest.mark.parametrize(
    ("squeue", "status", "has_run", "is_requeued"),
    [
        ("echo 2", 0, True, False),
        ("echo 2", 143, True, True),
        ("echo 3", 0, False, False),
        ("true", 0, False, False),
        ("echo slurm_load_jobs error: Invalid job id specified; exit 1", 0, False, False),
        ("echo Unable to contact slurm controller; exit 1", 0, True, False),
    ],
)
def test_joining_node_runs_only_until_the_job_ends_or_is_requeued(
    squeue: str, status: int, has_run: bool, is_requeued: bool, tmp_path: Path
) -> None:
    application = app("-c", f"echo joined; exit {status}", entrypoint="bash", num_replicas=3, min_replicas=1)
    run(request(application, tmp_path), tmp_path, RANK="0")
    (tmp_path / "calls").unlink()
    fake_command(tmp_path, "squeue", squeue)
    joiner = JobRequest("job", [], (tmp_path / "sbatch.script").read_text())
    joined = {"TORCHX_JOINED_JOB": "5", "TORCHX_JOINED_LIFE": "2", "TORCHX_JOINED_LOG": "/logs/5-2.log"}
    done = run(joiner, tmp_path, RANK="0", **joined)
    assert (done.stdout == "joined\n") == has_run
    assert done.returncode == (status if has_run else 0)
    logged = (tmp_path / "calls").read_text() if (tmp_path / "calls").exists() else ""
    assert ("requeue 7" in logged) == is_requeued


@pytest.mark.parametrize(
    ("ends", "rank", "status", "is_requeued"),
    [
        ("exit 143", "1", 143, True),
        ("exit 143", "0", 143, False),
        ("exit 1", "1", 1, False),
        ("kill -TERM $PPID; exit 143", "1", 143, False),
        ("kill -USR1 $PPID; exit 143", "1", 143, False),
        ("kill -USR2 $PPID; exit 0", "1", 0, False),
    ],
)
def test_elastic_job_is_requeued_if_another_node_stops_unasked(
    ends: str, rank: str, status: int, is_requeued: bool, tmp_path: Path
) -> None:
    fake_command(tmp_path, "sleep", "exit 1")
    job = request(app("-c", ends, entrypoint="bash", num_replicas=2, min_replicas=1), tmp_path)
    assert run(job, tmp_path, RANK=rank).returncode == status
    assert ("requeue 7" in calls(tmp_path)) == is_requeued


def test_script_leaves_a_lost_node_to_slurm_if_all_nodes_are_needed(tmp_path: Path) -> None:
    run(request(app("x", num_replicas=2), tmp_path), tmp_path, MESSAGE="srun: error: Node failure on node4")
    assert "requeue" not in calls(tmp_path)
    assert "scancel --signal" not in calls(tmp_path)


def test_percent_signs_in_the_log_directory_are_escaped(tmp_path: Path) -> None:
    logs = tmp_path / "100%j"
    logs.mkdir()
    job = request(app("x"), logs)
    assert f"--output={tmp_path}/100%%j/%j-batch.log" in job.command
    run(job, tmp_path)
    assert f"--output={tmp_path}/100%%j/%j-%t.log" in calls(tmp_path)


def test_request_as_text_is_shell_input() -> None:
    text = str(request(app("x"), comment="two words"))
    assert text.startswith("sbatch --parsable ")
    assert "'--comment=two words'" in text
    assert text.endswith("SCRIPT")


def test_application_of_two_roles_is_refused() -> None:
    (role,) = app("x").roles
    with pytest.raises(SlurmError, match="2 roles"):
        request(specs.AppDef("x", [role, role]))


@pytest.mark.parametrize("name", ["", "a/b", "a b", "-x", "x" * 65])
def test_name_that_is_not_plain_is_refused(name: str) -> None:
    with pytest.raises(SlurmError, match=r"name=.* is not a plain name"):
        request(app("x", name=name))
