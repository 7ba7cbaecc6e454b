"""Real agents and workers that are stopped, killed, join and leave: no process hangs, and the journal has the cause."""

import re
import signal
import socket
from pathlib import Path

import psutil
import pytest

from elasticqa.cli.launch import Launch, torchrun_options
from elasticqa.errors import ExitCode
from tests.support import failing_evaluation, short_of_memory, stopping_start, training
from tests.support.local_job import PATIENCE_S, Job

pytestmark = pytest.mark.slow

HOST = socket.gethostname()
PEER_TIMEOUT_S = 8.0
"""Short, as tests wait for it, but longer than threads of a busy machine are delayed."""
SILENT = rf"rank {{}} on {re.escape(HOST)} (was|sent no heartbeat) "
"""A stopped worker, as itself or its agent sees it, or as the other rank does."""


@pytest.fixture
def flags(tiny_model: Path, tiny_squad: Path) -> list[str]:
    """Return the flags of a run that is far from its end when something happens to it."""
    return [
        "--recipe=demo", f"--model={tiny_model}", f"--dataset={tiny_squad}", "--max-length=160", "--doc-stride=32",
        "--global-batch-size=7", "--log-every-s=0", "--no-eval-before", "--checkpoint-every-steps=20", "--epochs=1000",
    ]  # fmt: skip


def assert_second_attempt_resumed(job: Job) -> None:
    """The second attempt starts after the last checkpoint of the first, whose line may be missing in the journal."""
    saved = max(line["step"] for line in job.lines(1)["checkpoint"])
    start = job.lines(2)["setup"][0]["start_step"]
    assert saved <= start <= max(training.losses(job.directory, 1))
    assert min(training.losses(job.directory, 2)) == start + 1


def is_gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("rank", [0, 1])
def test_stopped_worker_is_detected_and_the_group_restarts(rank: int, flags: list[str], tmp_path: Path) -> None:
    with Job(tmp_path, *flags, nnodes="1", nproc=2, peer_timeout_s=PEER_TIMEOUT_S) as job:
        job.until(lambda: job.lines(1).get("checkpoint"))
        job.worker(rank).send_signal(signal.SIGSTOP)
        job.until_step(2, world_size=2)
        job.stop()
    assert_second_attempt_resumed(job)
    end = job.lines(1)["end"][0]
    assert end["status"] == "failed"
    assert re.match(SILENT.format(rank), end["reason"]), end
    stacks = {path.name: path.read_text() for path in (job.directory / "stacks").glob("attempt-0001-*")}
    assert set(stacks) == {"attempt-0001-rank-00000.txt", "attempt-0001-rank-00001.txt"}
    for text in stacks.values():
        assert re.search(SILENT.format(rank), text), text
        assert "trainer.py" in text, text
    if rank == 1:
        (event,) = (line for line in job.lines(1)["event"] if line["name"] == "peer_lost")
        assert f"rank 1 on {HOST} sent no heartbeat for" in event["message"]
        assert event["data"]["rank"] == 1


@pytest.mark.parametrize(
    ("moment", "rank"),
    [
        (stopping_start.IMPORTS, 1),
        (stopping_start.BEFORE_GROUP, 0),
        (stopping_start.IN_GROUP, 1),
        (stopping_start.CONNECTING, 0),
        (stopping_start.LOADING, 1),
    ],
)
def test_worker_that_stops_before_its_attempt_is_recorded_by_the_next_one(
    moment: str, rank: int, flags: list[str], tmp_path: Path
) -> None:
    job = Job(tmp_path, *flags, "--max-steps=4", nnodes="", nproc=2, peer_timeout_s=PEER_TIMEOUT_S,
              module=stopping_start.__name__)  # fmt: skip
    job.environ |= {stopping_start.MOMENT_VARIABLE: moment, stopping_start.RANK_VARIABLE: str(rank)}
    with job:
        job.expect_exit(0)
    # An attempt that was claimed before the stop has no journal.
    lines = job.lines(1) or job.lines(2)
    (event,) = (line for line in lines["event"] if line["name"] == "start_failed")
    assert re.match(SILENT.format(rank), event["message"]), event
    assert lines["attempt"][0]["restart_count"] == 1
    assert lines["end"][0]["status"] == "finished"
    assert re.search(rf"elasticqa: {SILENT.format(rank)}.*for \d+ s", job.output())


@pytest.mark.parametrize("max_restarts", [0, 2])
def test_node_whose_worker_stops_before_its_attempt_restarts_or_ends_the_job(
    max_restarts: int, flags: list[str], tmp_path: Path
) -> None:
    job = Job(tmp_path, *flags, "--max-steps=4", nnodes="2", peer_timeout_s=PEER_TIMEOUT_S, max_restarts=max_restarts)
    with job:
        other = job.start_second()
        job.until(psutil.Process(other.pid).children)
        (worker,) = psutil.Process(other.pid).children()
        worker.send_signal(signal.SIGSTOP)
        job.expect_exit(*([0, 0] if max_restarts else [ExitCode.STORE_LOST, ExitCode.FAILED]))
    assert re.search(rf"elasticqa: rank [01] on {re.escape(HOST)} was stopped for \d+ s", job.output())
    assert max_restarts or "elasticqa: the rendezvous of this job is closed" in job.output()


@pytest.mark.parametrize("rank", [0, 1])
def test_killed_worker_is_reported_with_its_signal(rank: int, flags: list[str], tmp_path: Path) -> None:
    with Job(tmp_path, *flags, nnodes="1", nproc=2) as job:
        job.until(lambda: job.lines(1).get("checkpoint"))
        job.worker(rank).send_signal(signal.SIGKILL)
        job.until_step(2, world_size=2)
        job.stop()
    assert_second_attempt_resumed(job)
    (end,) = job.lines(1)["end"]
    assert (end["status"], end["reason"]) == ("failed", f"rank {rank} on {HOST} was killed by SIGKILL")
    assert [line["n"] for lines in job.lines(1).values() for line in lines].count(end["n"]) == 1


def test_evaluation_that_raises_on_one_rank_ends_the_attempt_with_its_error(flags: list[str], tmp_path: Path) -> None:
    job = with_evaluation(failing_evaluation.RAISES, flags, tmp_path)
    assert job.lines(1)["end"][0]["reason"] == f"rank 1 on {HOST} failed: IndexError: span 7 is not in the context"
    text = (job.directory / "stacks" / "attempt-0001-rank-00001.txt").read_text()
    assert "Traceback" in text
    assert "nor anywhere" in text


def test_error_that_follows_from_a_lost_rank_is_kept_beside_the_cause(flags: list[str], tmp_path: Path) -> None:
    job = with_evaluation(failing_evaluation.FOLLOWS, flags, tmp_path)
    assert job.lines(1)["end"][0]["reason"] == f"rank 0 on {HOST} was killed by SIGKILL"
    text = (job.directory / "stacks" / "attempt-0001-rank-00001.txt").read_text()
    assert f"rank 1 on {HOST} failed\nTraceback" in text
    assert "trainer.py" in text
    assert "ConnectionError: as a collective would" in text
    assert f"rank 0 on {HOST} disconnected" in text


def test_rank_that_hangs_in_an_evaluation_ends_the_attempt(flags: list[str], tmp_path: Path) -> None:
    job = with_evaluation(failing_evaluation.HANGS, flags, tmp_path)
    # The other rank waits for it in a collective, so either may be the first that counts as stuck.
    reason = job.lines(1)["end"][0]["reason"]
    assert re.match(rf"rank [01] on {re.escape(HOST)} was stuck for 4 s in ", reason), reason
    stacks = [(job.directory / "stacks" / f"attempt-0001-rank-0000{rank}.txt").read_text() for rank in (0, 1)]
    assert "trainer.py" in stacks[0]
    assert "threading.py" in stacks[1]


def test_sharded_run_restarts_with_smaller_micro_batches_after_out_of_memory(flags: list[str], tmp_path: Path) -> None:
    flags = [*flags, "--parallel=fsdp", "--max-steps=6", "--dropout=0"]
    whole = Job(tmp_path / "whole", *flags, nnodes="1", nproc=2)
    short = Job(tmp_path / "short", *flags, nnodes="", nproc=2, module=short_of_memory.__name__)
    short.environ[short_of_memory.TOKENS_VARIABLE] = "250"
    for job in (whole, short):
        with job:
            job.expect_exit(0)
    *failed, last = sorted(int(path.name.split("-")[1]) for path in short.directory.glob("journal/*-node-00000.jsonl"))
    ends = [short.lines(attempt)["end"][0] for attempt in failed]
    assert ends
    assert all(
        re.match(
            rf"rank 1 on {re.escape(HOST)} failed: LocalOutOfMemoryError: a micro-batch of \d features", end["reason"]
        )
        for end in ends
    )
    events = [event for event in short.lines(last)["event"] if event["name"] == "micro_batch_halved"]
    assert [event["data"]["micro_batch_size"] for event in events] == [1 if len(failed) > 1 else 2]
    assert short.lines(last)["end"][0]["status"] == "finished"
    assert training.fed(short.directory, last) == training.fed(whole.directory)
    assert training.losses(short.directory, last) == pytest.approx(training.losses(whole.directory), abs=1e-4)


def with_evaluation(way: str, flags: list[str], folder: Path) -> Job:
    """Return a job of two ranks whose first attempt failed in the evaluation after step 8 and whose second finished."""
    job = Job(folder, *flags, "--max-steps=12", "--eval-every-steps=8", nnodes="", nproc=2,
              module=failing_evaluation.__name__)  # fmt: skip
    job.environ[failing_evaluation.WAY_VARIABLE] = way
    with job:
        job.expect_exit(0)
    assert job.lines(1)["end"][0]["status"] == "failed"
    assert job.lines(2)["end"][0]["status"] == "finished"
    assert job.lines(2)["setup"][0]["start_step"] == 8
    # The second attempt makes up for the evaluation that failed.
    assert [line["step"] for line in job.lines(2)["evaluation"]] == [8, 12]
    return job


def test_workers_save_when_the_terminal_of_their_agent_closes(flags: list[str], tmp_path: Path) -> None:
    with Job(tmp_path, *flags, nnodes="1", nproc=2) as job:
        job.until_step(1, world_size=2)
        job.nodes[0].send_signal(signal.SIGHUP)
        job.expect_exit(ExitCode.STOPPED)
    (end,) = job.lines(1)["end"]
    assert (end["status"], end["reason"]) == ("preempted", "asked to stop by SIGTERM")
    assert job.lines(1)["checkpoint"][-1]["step"] == end["step"]


def test_request_that_workers_refuse_is_not_tried_again(flags: list[str], tmp_path: Path) -> None:
    with Job(tmp_path, *flags, "--resume=NOWHERE", nnodes="1", nproc=2) as job:
        job.expect_exit(ExitCode.BAD_REQUEST)
    assert job.output().count("resume='NOWHERE' is not a run") == 1
    assert "Traceback" not in job.output()


def test_removed_run_directory_ends_the_job_with_one_line(flags: list[str], tmp_path: Path) -> None:
    with Job(tmp_path, *flags, nnodes="1", nproc=2) as job:
        job.until_step(1, world_size=2)
        job.directory.rename(tmp_path / "gone")  # removed at once, as the run sees it
        job.expect_exit(ExitCode.BAD_REQUEST)
    assert job.output().count(f"elasticqa: run directory {job.directory} is gone") == 1
    assert "Traceback" not in job.output()
    assert not job.directory.exists()


def test_no_step_is_lost_when_a_node_joins_and_leaves(flags: list[str], tmp_path: Path) -> None:
    with Job(tmp_path, *flags, nnodes="1:2") as job:
        job.until_step(1, world_size=1)
        joined = job.start()
        # The second attempt, or the third if the node joins slowly.
        grown = job.until_world(2)
        joined.send_signal(signal.SIGTERM)
        assert joined.wait(PATIENCE_S) == ExitCode.STOPPED
        job.until_step(grown + 1, world_size=1)
        job.stop()
    ends = [job.lines(attempt)["end"][0] for attempt in range(1, grown + 2)]
    assert {end["status"] for end in ends} == {"preempted"}
    *joins, leave, _ = (end["reason"] for end in ends)
    assert all(f"on {HOST} finds a node that waits to join" in reason for reason in joins)
    assert f"on {HOST} leaves" in leave
    for attempt in range(1, grown + 1):
        assert min(training.losses(job.directory, attempt + 1)) == ends[attempt - 1]["step"] + 1
    assert job.lines(grown + 1)["attempt"][0]["restart_count"] == 0


def test_worker_of_a_killed_agent_ends_and_a_new_node_replaces_it(flags: list[str], tmp_path: Path) -> None:
    with Job(tmp_path, *flags, nnodes="2") as job:
        lost = job.start_second()
        job.until_step(1, world_size=2)
        (worker,) = psutil.Process(lost.pid).children()
        lost.kill()
        job.until(lambda: is_gone(worker))
        job.start()
        job.until_step(2, world_size=2)
        # The worker that lost its agent was asked to stop, and both ranks saved.
        (end,) = job.lines(1)["end"]
        assert end["status"] == "preempted"
        assert min(training.losses(job.directory, 2)) == end["step"] + 1
        job.nodes[0].kill()
        assert job.nodes[-1].wait(PATIENCE_S) == ExitCode.STORE_LOST, job.output()
        # No process waits for the worker of the lost node, which may be rank 0.
        job.until(lambda: job.lines(2).get("end"))
    assert "start the same command again on every node" in job.output()
    assert job.lines(2)["end"][0]["status"] in ("failed", "preempted")


def test_other_node_detects_the_stopped_host_of_the_store(flags: list[str], tmp_path: Path) -> None:
    with Job(tmp_path, *flags, nnodes="2", peer_timeout_s=PEER_TIMEOUT_S) as job:
        other = job.start_second()
        job.until_step(1, world_size=2)
        job.nodes[0].send_signal(signal.SIGSTOP)
        assert other.wait(PATIENCE_S) == ExitCode.STORE_LOST, job.output()
        # The worker of the stopped agent still runs and has lost its peer.
        job.until(lambda: job.lines(1).get("end"))
    assert re.search(
        r"the rendezvous store at \S+ port \d+ has not answered for \d+ s: the node that hosts it", job.output()
    )
    assert job.lines(1)["end"][0]["status"] in ("failed", "preempted")


def test_port_of_the_store_in_use_is_reported(flags: list[str], tmp_path: Path) -> None:
    job = Job(tmp_path, *flags, nnodes="2", peer_timeout_s=PEER_TIMEOUT_S)
    options = torchrun_options(Launch(2, 2, 1, 0), job.environ)
    (endpoint,) = (option.partition("=")[2] for option in options if option.startswith("--rdzv-endpoint="))
    with socket.create_server(("", int(endpoint.rpartition(":")[2]))), job:
        job.start()
        job.expect_exit(ExitCode.STORE_LOST, ExitCode.STORE_LOST)
    assert "or another program uses its port" in job.output()
    assert not job.directory.exists()
