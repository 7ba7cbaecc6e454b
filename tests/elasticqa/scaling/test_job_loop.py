"""The loop of a study, with a fake scheduler whose jobs end as each test asks."""

import io
import json
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from elasticqa.errors import ConfigError
from elasticqa.scaling.job_loop import JobLoop
from elasticqa.scaling.jobs import Jobs, JobState
from elasticqa.scaling.matrix import StudyMatrix
from elasticqa.scaling.progress import Progress
from elasticqa.scaling.study import FAILED, OPEN, Study, StudyRun, create, load
from tests.support import journals
from tests.support.scaling import MATRIX

SMALL = replace(MATRIX, strategies=("ddp",), nodes=(1,), nproc_per_node=(2,), repeats=2, scheduler="slurm")
LOCAL = replace(SMALL, scheduler="local_cwd")
NEVER_END: dict[str, str | None] = dict.fromkeys(("none-1x1", "ddp-1x2"))


class FakeJobs(Jobs):
    """Jobs that end at once with the status that ``ends`` has for the cell; None: the job keeps running."""

    def __init__(self, runs_dir: Path, ends: dict[str, str | None] | None = None) -> None:
        self.runs_dir = runs_dir
        self.ends = ends or {}
        self.submitted: list[str] = []
        self.known: dict[str, JobState] = {}
        self.flags: list[list[str]] = []
        self.max_running = 0

    def submit(self, run: StudyRun, flags: Iterable[str]) -> str:
        end = self.ends.get(run.slot.cell.name, "finished")
        if end == "refused":
            raise ConfigError("sbatch refuses the job")
        self.submitted.append(run.run_id)
        self.flags.append(list(flags))
        self.known[run.run_id] = "running"
        self.max_running = max(self.max_running, sum(job == "running" for job in self.known.values()))
        if end not in (None, "silent"):
            write_end(self.runs_dir, run.run_id, end)
        return f"slurm://torchx/{run.run_id}"

    def state(self, run: StudyRun, *, at_once: bool) -> JobState:
        is_over = (self.runs_dir / run.run_id / "journal").is_dir() or self.ends.get(run.slot.cell.name) == "silent"
        if is_over and run.run_id in self.known:
            self.known[run.run_id] = "over"
        return self.known.get(run.run_id, "unknown")

    def find(self, run: StudyRun) -> str | None:
        return f"slurm://torchx/{run.run_id}" if run.run_id in self.known else None

    def last_message(self, run: StudyRun, logs: Path) -> str:
        return ""


def write_end(runs_dir: Path, run_id: str, status: str | None) -> None:
    lines = [journals.attempt_line(run_id), journals.end_line(3, status=status, reason="out of memory")]
    journals.journal_path(runs_dir, run_id).write_bytes(journals.numbered(lines))


def job_loop(
    tmp_path: Path, matrix: StudyMatrix = SMALL, ends: dict[str, str | None] | None = None, study: Study | None = None
) -> tuple[JobLoop, FakeJobs]:
    """Return a loop, for a new study if none is given, and its jobs."""
    runs_dir = tmp_path / "runs"
    jobs = FakeJobs(runs_dir, ends)
    loop = JobLoop(
        study=study or create(tmp_path / "studies", matrix, []),
        config=matrix.config(),
        runs_dir=runs_dir,
        jobs=jobs,
        max_in_flight=3,
        stop=threading.Event(),
        progress=Progress(runs_dir, io.StringIO()),
        poll_interval_s=0,
    )
    return loop, jobs


def output(loop: JobLoop) -> str:
    assert isinstance(loop.progress.out, io.StringIO)
    return loop.progress.out.getvalue()


def tags_of(loop: JobLoop, run_id: str) -> list[str]:
    tags: list[str] = []
    for line in map(json.loads, (loop.runs_dir / run_id / "annotations.jsonl").read_text().splitlines()):
        if line["kind"] == "tag":
            tags.append(line["value"])
        elif line["kind"] == "untag":
            tags.remove(line["value"])
    return tags


def test_study_fills_every_slot_with_one_run_and_tags_it(tmp_path: Path) -> None:
    loop, jobs = job_loop(tmp_path)
    loop.run()
    assert loop.study.is_complete()
    assert load(loop.study.path).is_complete()
    assert len(jobs.submitted) == 4
    assert sorted(tuple(tags_of(loop, run_id)) for run_id in jobs.submitted) == sorted(
        (f"study:{loop.study.study_id}", f"cell:{slot.cell.name}", f"repeat:{slot.repeat}")
        for slot in loop.study.slots()
    )


def test_number_of_jobs_in_flight_is_bounded(tmp_path: Path) -> None:
    loop, jobs = job_loop(tmp_path, replace(SMALL, repeats=5))
    loop.run()
    assert jobs.max_running == 3


def test_failed_run_is_shown_with_its_reason_and_not_retried(tmp_path: Path) -> None:
    loop, jobs = job_loop(tmp_path, ends={"ddp-1x2": "failed"})
    loop.run()
    assert len(jobs.submitted) == 4
    assert "ddp-1x2 repeat 1: failed: out of memory" in output(loop)
    assert "ddp-1x2 repeat 2: out of memory" in loop.progress.table(loop.study)
    again, jobs = job_loop(tmp_path, study=load(loop.study.path))
    again.reattach()
    again.run()
    assert jobs.submitted == []
    assert not again.study.is_complete()


def test_retried_runs_leave_the_study(tmp_path: Path) -> None:
    loop, first = job_loop(tmp_path, ends={"ddp-1x2": "failed"})
    loop.run()
    failed = {run.run_id for run in loop.study.runs_with(FAILED)}
    again, second = job_loop(tmp_path, study=load(loop.study.path))
    again.retry_failed()
    again.run()
    assert again.study.is_complete()
    assert len(second.submitted) == 2
    assert not set(second.submitted) & set(first.submitted)
    tag = again.study.tag
    untagged = {run_id for run_id in (*first.submitted, *second.submitted) if tag not in tags_of(again, run_id)}
    assert untagged == failed


def test_job_that_ends_without_a_message_has_failed(tmp_path: Path) -> None:
    loop, _ = job_loop(tmp_path, ends={"none-1x1": "silent"})
    loop.run()
    assert {run.reason for run in loop.study.runs_with(FAILED)} == {
        "the job ended without an error message: it was killed, or its node was lost"
    }


def test_jobs_of_a_killed_study_are_found_again_and_not_repeated(tmp_path: Path) -> None:
    loop, before = job_loop(tmp_path)
    runs = [loop.study.add_run(slot) for slot in loop.study.slots()[:3]]
    for run in runs[:2]:
        before.submit(run, [])
    # The first is noted, the second was submitted just before the kill, the third was not submitted.
    loop.study.note_submitted(runs[0], "slurm://torchx/1")
    after, jobs = job_loop(tmp_path, study=load(loop.study.path))
    jobs.known = before.known
    after.reattach()
    after.run()
    assert after.study.is_complete()
    assert jobs.submitted[0] == runs[2].run_id
    assert len(jobs.submitted) == 2
    assert {run.run_id for run in after.study.runs.values()} >= {run.run_id for run in runs}
    assert all(run.handle for run in after.study.runs.values())


@pytest.mark.parametrize("ends_after_reattaching", [False, True])
def test_local_run_that_was_stopped_with_the_study_is_measured_again(
    ends_after_reattaching: bool, tmp_path: Path
) -> None:
    loop, before = job_loop(tmp_path, LOCAL, NEVER_END)
    run = loop.study.add_run(loop.study.slots()[0])
    loop.study.note_submitted(run, before.submit(run, []))
    after, jobs = job_loop(tmp_path, LOCAL, study=load(loop.study.path))
    if ends_after_reattaching:
        jobs.known[run.run_id] = "running"
        after.reattach()
        assert after.study.runs_with(OPEN)
    write_end(loop.runs_dir, run.run_id, "preempted")
    if not ends_after_reattaching:
        after.reattach()
    after.run()
    assert after.study.is_complete()
    assert len(jobs.submitted) == 4
    assert run.run_id not in jobs.submitted


def test_stopped_study_leaves_cluster_jobs_running(tmp_path: Path) -> None:
    loop, jobs = job_loop(tmp_path, ends=NEVER_END)
    loop.stop.set()
    loop.run()
    assert jobs.submitted == []
    run = loop.study.add_run(loop.study.slots()[0])
    loop.study.note_submitted(run, jobs.submit(run, []))
    loop.run()
    assert load(loop.study.path).runs_with(OPEN) == [run]


def test_refused_job_ends_the_study_and_leaves_no_run(tmp_path: Path) -> None:
    loop, _ = job_loop(tmp_path, ends={"ddp-1x2": "refused"})
    with pytest.raises(ConfigError, match="sbatch refuses the job"):
        loop.run()
    assert [run.status for run in loop.study.runs.values()] == ["stopped"]
    assert list(loop.runs_dir.iterdir()) == []


def test_every_run_has_the_training_options_of_its_cell(tmp_path: Path) -> None:
    loop, jobs = job_loop(tmp_path)
    loop.run()
    assert {tuple(flags) for flags in jobs.flags} == {
        tuple(SMALL.flags_of(cell, SMALL.config())) for cell in SMALL.cells()
    }
