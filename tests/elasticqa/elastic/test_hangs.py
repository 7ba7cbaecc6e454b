"""Real agents and workers that are stopped, killed, join and leave: nobody waits for ever, and the record says why."""

import re
import signal
import socket
from pathlib import Path

import psutil
import pytest

from elasticqa.cli.launch import Launch, torchrun_options
from elasticqa.errors import ExitCode
from tests.support import failing_evaluation, short_of_memory, stopping_start, training
from tests.support.local_job import PATIENCE_S, Job, running

pytestmark = pytest.mark.slow

HOST = socket.gethostname()
SILENCE_S = 8.0
"""Where a test waits for it: longer than a busy machine lets no thread run."""


@pytest.fixture
def flags(tiny_model: Path, tiny_squad: Path) -> list[str]:
    """Return flags of a run that is far from its end when something happens to it."""
    return [
        "--recipe=demo", f"--model={tiny_model}", f"--dataset={tiny_squad}", "--max-length=160", "--doc-stride=32",
        "--global-batch-size=7", "--log-every-s=0", "--no-eval-before", "--checkpoint-every-steps=20", "--epochs=1000",
    ]  # fmt: skip


def second_goes_on(job: Job) -> None:
    """The second attempt goes on after the last step that the first one saved, if it did not die before it said so."""
    said = max(line["step"] for line in job.lines(1)["checkpoint"])
    start = job.lines(2)["setup"][0]["start_step"]
    assert said <= start <= max(training.losses(job.directory, 1))
    assert min(training.losses(job.directory, 2)) == start + 1


def is_gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def stop(job: Job) -> None:
    for node in job.nodes:
        if node.poll() is None:
            node.send_signal(signal.SIGTERM)
            assert node.wait(PATIENCE_S) == 143, job.told()


@pytest.mark.parametrize("rank", [0, 1])
def test_stopped_worker_is_noticed_and_the_group_starts_again(rank: int, flags: list[str], tmp_path: Path) -> None:
    with running(Job(tmp_path, *flags, nnodes="1", nproc=2, silence_s=SILENCE_S)) as job:
        job.until(lambda: job.lines(1).get("checkpoint"))
        job.worker(rank).send_signal(signal.SIGSTOP)
        job.until_step(2, world_size=2)
        stop(job)
    second_goes_on(job)
    end = job.lines(1)["end"][0]
    assert end["status"] == "failed"
    assert end["reason"].startswith(f"rank {rank} on {HOST} was ")
    stacks = {path.name: path.read_text() for path in (job.directory / "stacks").glob("attempt-0001-*")}
    assert set(stacks) == {"attempt-0001-rank-00000.txt", "attempt-0001-rank-00001.txt"}
    for text in stacks.values():
        assert f"rank {rank} on {HOST} was " in text
        assert "trainer.py" in text, text
    if rank == 1:
        (event,) = (line for line in job.lines(1)["event"] if line["name"] == "peer_lost")
        assert f"rank 1 on {HOST} was not heard of for" in event["message"]
        assert event["data"]["rank"] == 1


@pytest.mark.parametrize(
    ("moment", "rank"),
    [
        (stopping_start.IMPORTS, 1),
        (stopping_start.BEFORE_GROUP, 0),
        (stopping_start.IN_GROUP, 1),
        (stopping_start.MEETING, 0),
        (stopping_start.LOADING, 1),
    ],
)
def test_worker_that_stops_before_any_attempt_is_told_by_the_next_start(
    moment: str, rank: int, flags: list[str], tmp_path: Path
) -> None:
    job = Job(tmp_path, *flags, "--max-steps=4", nnodes="", nproc=2, silence_s=SILENCE_S,
              module=stopping_start.__name__)  # fmt: skip
    job.environ |= {stopping_start.MOMENT_VARIABLE: moment, stopping_start.RANK_VARIABLE: str(rank)}
    with running(job):
        assert job.nodes[0].wait(PATIENCE_S) == 0, job.told()
    # One that was claimed, but not by all, has no journal.
    lines = job.lines(1) or job.lines(2)
    (event,) = (line for line in lines["event"] if line["name"] == "start_failed")
    assert re.match(rf"rank {rank} on {re.escape(HOST)} was ", event["message"]), event
    assert lines["attempt"][0]["restart_count"] == 1
    assert lines["end"][0]["status"] == "finished"
    assert re.search(rf"elasticqa: rank {rank} on {re.escape(HOST)} was .* for \d+ s", job.told())


@pytest.mark.parametrize("max_restarts", [0, 2])
def test_node_whose_worker_stops_before_any_attempt_starts_again_or_ends_for_all(
    max_restarts: int, flags: list[str], tmp_path: Path
) -> None:
    job = Job(tmp_path, *flags, "--max-steps=4", nnodes="2", silence_s=SILENCE_S, max_restarts=max_restarts)
    with running(job):
        # The first to listen hosts the store, which the other one would miss at once.
        job.until(lambda: any(c.status == "LISTEN" for c in psutil.Process(job.nodes[0].pid).net_connections()))
        other = job.start()
        job.until(psutil.Process(other.pid).children)
        (worker,) = psutil.Process(other.pid).children()
        worker.send_signal(signal.SIGSTOP)
        statuses = [node.wait(PATIENCE_S) for node in job.nodes]
    assert statuses == ([0, 0] if max_restarts else [ExitCode.STORE_LOST, ExitCode.FAILED]), job.told()
    assert re.search(rf"elasticqa: rank [01] on {re.escape(HOST)} was stopped for \d+ s", job.told())
    assert max_restarts or "elasticqa: the rendezvous of this job is over" in job.told()


@pytest.mark.parametrize("rank", [0, 1])
def test_killed_worker_is_named_with_its_signal(rank: int, flags: list[str], tmp_path: Path) -> None:
    with running(Job(tmp_path, *flags, nnodes="1", nproc=2)) as job:
        job.until(lambda: job.lines(1).get("checkpoint"))
        job.worker(rank).send_signal(signal.SIGKILL)
        job.until_step(2, world_size=2)
        stop(job)
    second_goes_on(job)
    (end,) = job.lines(1)["end"]
    assert (end["status"], end["reason"]) == ("failed", f"rank {rank} on {HOST} was killed by SIGKILL")
    assert [line["n"] for lines in job.lines(1).values() for line in lines].count(end["n"]) == 1


def test_evaluation_that_raises_on_one_rank_ends_the_attempt_with_its_error(flags: list[str], tmp_path: Path) -> None:
    job = with_evaluation(failing_evaluation.RAISES, flags, tmp_path)
    assert job.lines(1)["end"][0]["reason"] == f"rank 1 on {HOST} failed: IndexError: span 7 is not in the context"
    text = (job.directory / "stacks" / "attempt-0001-rank-00001.txt").read_text()
    assert "Traceback" in text
    assert "nor anywhere" in text


def test_error_that_follows_from_the_loss_of_another_rank_is_kept_beside_it(flags: list[str], tmp_path: Path) -> None:
    job = with_evaluation(failing_evaluation.FOLLOWS, flags, tmp_path)
    assert job.lines(1)["end"][0]["reason"] == f"rank 0 on {HOST} was killed by SIGKILL"
    text = (job.directory / "stacks" / "attempt-0001-rank-00001.txt").read_text()
    assert f"rank 1 on {HOST} failed\nTraceback" in text
    assert "trainer.py" in text
    assert "ConnectionError: as a collective would" in text
    assert f"rank 0 on {HOST} went away" in text


def test_rank_that_waits_for_what_never_comes_ends_the_attempt(flags: list[str], tmp_path: Path) -> None:
    job = with_evaluation(failing_evaluation.HANGS, flags, tmp_path)
    # The others wait for it in a collective, so that any of them may be the first to be seen at one place for so long.
    reason = job.lines(1)["end"][0]["reason"]
    assert re.match(rf"rank [01] on {re.escape(HOST)} was stuck for 4 s in ", reason), reason
    stacks = [(job.directory / "stacks" / f"attempt-0001-rank-0000{rank}.txt").read_text() for rank in (0, 1)]
    assert "trainer.py" in stacks[0]
    assert "threading.py" in stacks[1]


def test_sharded_run_goes_on_with_halves_of_what_a_rank_had_no_memory_for(flags: list[str], tmp_path: Path) -> None:
    flags = [*flags, "--parallel=fsdp", "--max-steps=6", "--dropout=0"]
    whole, short = Job(tmp_path / "whole", *flags, nnodes="1", nproc=2), short_job(tmp_path / "short", flags, 250)
    for job in (whole, short):
        with running(job):
            assert job.nodes[0].wait(PATIENCE_S) == 0, job.told()
    *failed, last = sorted(int(path.name.split("-")[1]) for path in short.directory.glob("journal/*-node-00000.jsonl"))
    ends = [short.lines(attempt)["end"][0] for attempt in failed]
    assert ends
    assert all(
        re.match(rf"rank 1 on {re.escape(HOST)} failed: NoMemoryHereError: a micro-batch of \d features", end["reason"])
        for end in ends
    )
    events = [event for event in short.lines(last)["event"] if event["name"] == "micro_batch_halved"]
    assert [event["data"]["micro_batch_size"] for event in events] == [1 if len(failed) > 1 else 2]
    assert short.lines(last)["end"][0]["status"] == "finished"
    assert training.fed(short.directory, last) == training.fed(whole.directory)
    assert training.losses(short.directory, last) == pytest.approx(training.losses(whole.directory), abs=1e-4)


def short_job(folder: Path, flags: list[str], tokens: int) -> Job:
    """Return a job of two ranks, the last of which has memory for so many tokens only."""
    job = Job(folder, *flags, nnodes="", nproc=2, module=short_of_memory.__name__)
    job.environ[short_of_memory.TOKENS_VARIABLE] = str(tokens)
    return job


def with_evaluation(way: str, flags: list[str], folder: Path) -> Job:
    """Return a job of two ranks whose first attempt failed at the evaluation after step 8, and whose second did not."""
    job = Job(folder, *flags, "--max-steps=12", "--eval-every-steps=8", nnodes="", nproc=2,
              module=failing_evaluation.__name__)  # fmt: skip
    job.environ[failing_evaluation.WAY_VARIABLE] = way
    with running(job):
        assert job.nodes[0].wait(PATIENCE_S) == 0, job.told()
    assert job.lines(1)["end"][0]["status"] == "failed"
    assert job.lines(2)["end"][0]["status"] == "finished"
    assert job.lines(2)["setup"][0]["start_step"] == 8
    # What the first did not come to is made up for.
    assert [line["step"] for line in job.lines(2)["evaluation"]] == [8, 12]
    return job


def test_agent_whose_terminal_closes_has_its_workers_save(flags: list[str], tmp_path: Path) -> None:
    with running(Job(tmp_path, *flags, nnodes="1", nproc=2)) as job:
        job.until_step(1, world_size=2)
        job.nodes[0].send_signal(signal.SIGHUP)
        assert job.nodes[0].wait(PATIENCE_S) == ExitCode.STOPPED, job.told()
    (end,) = job.lines(1)["end"]
    assert (end["status"], end["reason"]) == ("preempted", "asked to stop by SIGTERM")
    assert job.lines(1)["checkpoint"][-1]["step"] == end["step"]


def test_request_that_the_workers_refuse_is_refused_once(flags: list[str], tmp_path: Path) -> None:
    with running(Job(tmp_path, *flags, "--resume=NOWHERE", nnodes="1", nproc=2)) as job:
        assert job.nodes[0].wait(PATIENCE_S) == ExitCode.BAD_REQUEST, job.told()
    assert job.told().count("resume='NOWHERE' is not a run") == 1
    assert "Traceback" not in job.told()


def test_run_whose_directory_is_removed_ends_in_one_line_and_for_good(flags: list[str], tmp_path: Path) -> None:
    with running(Job(tmp_path, *flags, nnodes="1", nproc=2)) as job:
        job.until_step(1, world_size=2)
        job.directory.rename(tmp_path / "gone")  # in one go, as far as the run can see
        assert job.nodes[0].wait(PATIENCE_S) == ExitCode.BAD_REQUEST, job.told()
    assert job.told().count(f"elasticqa: run directory {job.directory} is gone") == 1
    assert "Traceback" not in job.told()
    assert not job.directory.exists()


def test_node_joins_and_leaves_and_no_step_is_lost(flags: list[str], tmp_path: Path) -> None:
    with running(Job(tmp_path, *flags, nnodes="1:2")) as job:
        job.until_step(1, world_size=1)
        joined = job.start()
        # The second; a node that is slow to join finds it begun, and is in the one after.
        grown = job.until_world(2)
        joined.send_signal(signal.SIGTERM)
        assert joined.wait(PATIENCE_S) == 143
        job.until_step(grown + 1, world_size=1)
        stop(job)
    ends = [job.lines(attempt)["end"][0] for attempt in range(1, grown + 2)]
    assert {end["status"] for end in ends} == {"preempted"}
    *joins, leave, _ = (end["reason"] for end in ends)
    assert all(f"on {HOST} finds a node that waits to join" in reason for reason in joins)
    assert f"on {HOST} leaves" in leave
    for attempt in range(1, grown + 1):
        assert min(training.losses(job.directory, attempt + 1)) == ends[attempt - 1]["step"] + 1
    assert job.lines(grown + 1)["attempt"][0]["restart_count"] == 0


def test_killed_agent_takes_its_worker_along_and_a_new_node_takes_its_place(flags: list[str], tmp_path: Path) -> None:
    with running(Job(tmp_path, *flags, nnodes="2")) as job:
        # The first to listen hosts the store.
        job.until(lambda: any(c.status == "LISTEN" for c in psutil.Process(job.nodes[0].pid).net_connections()))
        lost = job.start()
        job.until_step(1, world_size=2)
        (worker,) = psutil.Process(lost.pid).children()
        lost.kill()
        job.until(lambda: is_gone(worker))
        job.start()
        job.until_step(2, world_size=2)
        # The worker that lost its agent was asked to stop, and all saved together.
        (end,) = job.lines(1)["end"]
        assert end["status"] == "preempted"
        assert min(training.losses(job.directory, 2)) == end["step"] + 1
        job.nodes[0].kill()
        assert job.nodes[-1].wait(PATIENCE_S) == ExitCode.STORE_LOST, job.told()
        # Nobody waits for the worker of the node that is gone, which may be rank 0.
        job.until(lambda: job.lines(2).get("end"))
    assert "start the same command again on every node" in job.told()
    assert job.lines(2)["end"][0]["status"] in ("failed", "preempted")


def test_stopped_host_of_the_store_is_lost_to_the_other_node(flags: list[str], tmp_path: Path) -> None:
    with running(Job(tmp_path, *flags, nnodes="2", silence_s=SILENCE_S)) as job:
        job.until(lambda: any(c.status == "LISTEN" for c in psutil.Process(job.nodes[0].pid).net_connections()))
        other = job.start()
        job.until_step(1, world_size=2)
        job.nodes[0].send_signal(signal.SIGSTOP)
        assert other.wait(PATIENCE_S) == ExitCode.STORE_LOST, job.told()
        # Its own worker, which nobody stopped, has lost its peer.
        job.until(lambda: job.lines(1).get("end"))
    assert re.search(
        r"the rendezvous store at \S+ port \d+ was not heard of for \d+ s: the node that hosts it", job.told()
    )
    assert job.lines(1)["end"][0]["status"] in ("failed", "preempted")


def test_port_of_the_store_that_another_program_has_is_told(flags: list[str], tmp_path: Path) -> None:
    job = Job(tmp_path, *flags, nnodes="2", silence_s=SILENCE_S)
    options = torchrun_options(Launch(2, 2, 1, 0), job.environ)
    (endpoint,) = (option.partition("=")[2] for option in options if option.startswith("--rdzv-endpoint="))
    with socket.create_server(("", int(endpoint.rpartition(":")[2]))), running(job):
        job.start()
        assert [node.wait(PATIENCE_S) for node in job.nodes] == [ExitCode.STORE_LOST] * 2, job.told()
    assert "or its port is taken" in job.told()
    assert not job.directory.exists()
