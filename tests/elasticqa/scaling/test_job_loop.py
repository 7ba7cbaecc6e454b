"""What a study does about its jobs, with a scheduler whose jobs end as the test says."""

import io
import json
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from elasticqa.errors import ConfigError
from elasticqa.scaling import state
from elasticqa.scaling.job_loop import Watch
from elasticqa.scaling.jobs import Jobs, State
from elasticqa.scaling.plan import Plan
from elasticqa.scaling.progress import Screen
from elasticqa.scaling.state import Study, Try, create, load
from tests.elasticqa.scaling.test_plan import PLAN as LARGE
from tests.support import journals

PLAN = replace(LARGE, strategies=("ddp",), nodes=(1,), nproc_per_node=(2,), repeats=2, scheduler="slurm")


class Scheduler(Jobs):
    """Jobs that end at once, as ``ends`` says for the cell; None is a job that goes on."""

    def __init__(self, runs: Path, ends: dict[str, str | None] | None = None) -> None:
        self.runs = runs
        self.ends = ends or {}
        self.submitted: list[str] = []
        self.known: dict[str, State] = {}
        self.flags: list[list[str]] = []
        self.most_at_once = 0

    def submit(self, item: Try, flags: Iterable[str]) -> str:
        end = self.ends.get(item.slot.cell.name, "finished")
        if end == "refused":
            raise ConfigError("sbatch refuses the job")
        self.submitted.append(item.run_id)
        self.flags.append(list(flags))
        self.known[item.run_id] = "running"
        self.most_at_once = max(self.most_at_once, sum(job == "running" for job in self.known.values()))
        if end is not None:
            write_end(self.runs, item.run_id, end)
        return f"slurm://torchx/{item.run_id}"

    def state(self, item: Try, *, at_once: bool) -> State:
        end = (self.runs / item.run_id / "journal").is_dir() or self.ends.get(item.slot.cell.name) == "silent"
        if end and item.run_id in self.known:
            self.known[item.run_id] = "over"
        return self.known.get(item.run_id, "unknown")

    def find(self, item: Try) -> str | None:
        return f"slurm://torchx/{item.run_id}" if item.run_id in self.known else None

    def last_words(self, item: Try, logs: Path) -> str:
        return ""


def write_end(runs: Path, run_id: str, status: str) -> None:
    if status != "silent":
        lines = [journals.attempt_line(run_id), journals.end_line(3, status=status, reason="as the test says")]
        journals.journal_path(runs, run_id).write_bytes(journals.numbered(lines))


def watch(
    tmp_path: Path, plan: Plan = PLAN, ends: dict[str, str | None] | None = None, study: Study | None = None
) -> tuple[Watch, Scheduler]:
    runs = tmp_path / "runs"
    scheduler = Scheduler(runs, ends)
    study = study or create(tmp_path / "studies", plan, [])
    screen = Screen(runs, io.StringIO())
    stop = threading.Event()
    return (
        Watch(
            study=study,
            config=plan.config(),
            runs=runs,
            jobs=scheduler,
            in_flight=3,
            stop=stop,
            screen=screen,
            look_interval_s=0,
        ),
        scheduler,
    )


def said(work: Watch) -> str:
    assert isinstance(work.screen.out, io.StringIO)
    return work.screen.out.getvalue()


def tags_of(work: Watch, run_id: str) -> list[str]:
    tags: list[str] = []
    for line in map(json.loads, (work.runs / run_id / "annotations.jsonl").read_text().splitlines()):
        if line["kind"] == "tag":
            tags.append(line["value"])
        elif line["kind"] == "untag":
            tags.remove(line["value"])
    return tags


def test_study_fills_every_slot_with_one_run_and_its_record_says_whose(tmp_path: Path) -> None:
    work, scheduler = watch(tmp_path)
    work.run()
    assert work.study.is_complete()
    assert load(work.study.path).is_complete()
    assert len(scheduler.submitted) == 4
    assert sorted(tuple(tags_of(work, run_id)) for run_id in scheduler.submitted) == sorted(
        (f"study:{work.study.study_id}", f"cell:{slot.cell.name}", f"repeat:{slot.repeat}")
        for slot in PLAN.slots(work.study.study_id)
    )


def test_no_more_jobs_than_asked_for_are_in_flight(tmp_path: Path) -> None:
    work, scheduler = watch(tmp_path, replace(PLAN, repeats=5))
    work.run()
    assert scheduler.most_at_once == 3


def test_failed_run_is_shown_with_its_reason_and_not_tried_again_by_itself(tmp_path: Path) -> None:
    work, scheduler = watch(tmp_path, ends={"ddp-1x2": "failed"})
    work.run()
    assert len(scheduler.submitted) == 4
    assert "ddp-1x2 repeat 1: failed: as the test says" in said(work)
    assert "ddp-1x2 repeat 2: as the test says" in work.screen.table(work.study)
    again, scheduler = watch(tmp_path, study=load(work.study.path))
    again.find_again()
    again.run()
    assert scheduler.submitted == []
    assert not again.study.is_complete()


def test_failed_runs_are_tried_again_on_request_and_leave_the_study(tmp_path: Path) -> None:
    work, first = watch(tmp_path, ends={"ddp-1x2": "failed"})
    work.run()
    failed = {item.run_id for item in work.study.all_with(state.FAILED)}
    again, scheduler = watch(tmp_path, study=load(work.study.path))
    again.retry()
    again.run()
    assert again.study.is_complete()
    assert len(scheduler.submitted) == 2
    assert not set(scheduler.submitted) & set(first.submitted)
    tag = again.study.tag
    left = {run_id for run_id in (*first.submitted, *scheduler.submitted) if tag not in tags_of(again, run_id)}
    assert left == failed


def test_job_that_ends_without_a_word_has_failed(tmp_path: Path) -> None:
    work, _ = watch(tmp_path, ends={"none-1x1": "silent"})
    work.run()
    assert {item.reason for item in work.study.all_with(state.FAILED)} == {
        "the job ended without a word: killed, or its node was lost"
    }


def test_jobs_of_a_killed_study_are_found_again_and_not_repeated(tmp_path: Path) -> None:
    work, before = watch(tmp_path)
    slots = PLAN.slots(work.study.study_id)
    left = [work.study.begin_try(slot) for slot in slots[:3]]
    for item in left[:2]:
        before.submit(item, [])
    # The first is noted, the second was submitted a moment before the kill, the third never.
    work.study.submitted(left[0], "slurm://torchx/1")
    after, scheduler = watch(tmp_path, study=load(work.study.path))
    scheduler.known = before.known
    after.find_again()
    after.run()
    assert after.study.is_complete()
    assert scheduler.submitted[0] == left[2].run_id
    assert len(scheduler.submitted) == 2
    assert {item.run_id for item in after.study.tries.values()} >= {item.run_id for item in left}
    assert all(item.handle for item in after.study.tries.values())


def test_local_run_that_was_stopped_with_the_study_is_measured_anew(tmp_path: Path) -> None:
    work, before = watch(tmp_path, replace(PLAN, scheduler="local_cwd"), ends=dict.fromkeys(("none-1x1", "ddp-1x2")))
    item = work.study.begin_try(PLAN.slots(work.study.study_id)[0])
    work.study.submitted(item, before.submit(item, []))
    write_end(work.runs, item.run_id, "preempted")
    after, scheduler = watch(tmp_path, replace(PLAN, scheduler="local_cwd"), study=load(work.study.path))
    after.find_again()
    after.run()
    assert after.study.is_complete()
    assert len(scheduler.submitted) == 4
    assert item.run_id not in scheduler.submitted


def test_local_run_that_still_ends_when_the_study_goes_on_is_measured_anew(tmp_path: Path) -> None:
    plan = replace(PLAN, scheduler="local_cwd")
    work, before = watch(tmp_path, plan, ends=dict.fromkeys(("none-1x1", "ddp-1x2")))
    item = work.study.begin_try(PLAN.slots(work.study.study_id)[0])
    work.study.submitted(item, before.submit(item, []))
    after, scheduler = watch(tmp_path, plan, study=load(work.study.path))
    scheduler.known[item.run_id] = "running"
    after.find_again()
    assert after.study.all_with(state.OPEN)
    write_end(work.runs, item.run_id, "preempted")
    after.run()
    assert after.study.is_complete()
    assert len(scheduler.submitted) == 4
    assert item.run_id not in scheduler.submitted


def test_study_that_is_stopped_leaves_the_jobs_of_a_cluster_alone(tmp_path: Path) -> None:
    work, scheduler = watch(tmp_path, ends=dict.fromkeys(("none-1x1", "ddp-1x2")))
    work.stop.set()
    work.run()
    assert scheduler.submitted == []
    item = work.study.begin_try(PLAN.slots(work.study.study_id)[0])
    work.study.submitted(item, scheduler.submit(item, []))
    work.run()
    assert load(work.study.path).all_with(state.OPEN) == [item]


def test_refused_job_ends_the_study_and_leaves_no_run(tmp_path: Path) -> None:
    work, _ = watch(tmp_path, ends={"ddp-1x2": "refused"})
    with pytest.raises(ConfigError, match="sbatch refuses the job"):
        work.run()
    assert [item.status for item in work.study.tries.values()] == ["stopped"]
    assert list(work.runs.iterdir()) == []


def test_flags_of_every_run_are_those_of_its_cell(tmp_path: Path) -> None:
    work, scheduler = watch(tmp_path)
    work.run()
    assert {tuple(flags) for flags in scheduler.flags} == {
        tuple(PLAN.flags_of(cell, PLAN.config())) for cell in PLAN.cells()
    }
