from pathlib import Path

import pytest
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session
from ulid import ULID

from db.ingest.update import ingest
from db.models import Checkpoint, Profile, Step, SystemSample
from tests.support.journals import (
    START,
    attempt_line,
    end_line,
    evaluation_line,
    journal_path,
    numbered,
    setup_line,
    step_line,
    write_run,
)
from tests.support.rows import every_row, of_runs, rebuilt, the_attempt, the_run


def test_killed_and_resumed_run_keeps_both_attempts(engine: Engine, runs: Path) -> None:
    steps = [step_line(step) for step in range(1, 6)]
    journal_path(runs, "a").write_bytes(numbered([attempt_line("a"), setup_line(), *steps]))
    again = [step_line(step, is_warmup=step == 4) for step in range(4, 8)]
    journal_path(runs, "a", attempt=2).write_bytes(
        numbered(
            [
                attempt_line("a", 2, world_size=3),
                setup_line(start_step=3, resumed_from="checkpoints/step-00000003"),
                *again,
                evaluation_line(7),
                end_line(7),
            ],
            start=START + 100,
        )
    )
    assert ingest(engine, runs).problems == []
    run, first, second = the_run(engine, "a"), the_attempt(engine, "a", 1), the_attempt(engine, "a", 2)
    assert (first.status, first.end_step, first.ended_at) == ("running", 5, None)
    assert (second.status, second.start_step, second.end_step) == ("finished", 3, 7)
    assert second.resumed_from == "checkpoints/step-00000003"
    assert (run.num_attempts, run.status, run.step, run.world_size) == (2, "finished", 7, 3)
    assert run.wall_clock_s == pytest.approx(second.ended_at - first.started_at)  # type: ignore[operator]
    assert first.train_time_s == pytest.approx(20 + 0.1 * (3 + 4 + 5))
    assert run.train_time_s == pytest.approx(first.train_time_s + 40)  # type: ignore[operator]
    assert run.samples_per_s == second.samples_per_s == pytest.approx(48 / (0.1 * (5 + 6 + 7)))
    with Session(engine) as session:
        numbers = session.execute(
            select(Step.attempt, Step.step).where(Step.run_id == "a").order_by(Step.attempt, Step.step)
        )
        assert [tuple(row) for row in numbers] == [(1, s) for s in range(1, 6)] + [(2, s) for s in range(4, 8)]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_nodes_may_be_read_in_any_order(engine: Engine, runs: Path, tmp_path: Path, order: tuple[int, int]) -> None:
    journals = {
        0: numbered(
            [
                attempt_line("a", num_nodes=2),
                {"kind": "system", "node_rank": 0, "cpu_percent": 50.0, "memory_bytes": 2**35, "gpus": []},
                step_line(1),
            ]
        ),
        1: numbered(
            [
                attempt_line("a", num_nodes=2, node_rank=1, host={"host_name": "n1", "device_name": "T4"}),
                {"kind": "system", "node_rank": 1, "cpu_percent": 1, "memory_bytes": None},
                {"kind": "profile", "step": 1, "rank": 2, "summary": {"x": 1}, "trace": None},
                step_line(1),
            ],
            start=START + 5,
        ),
    }
    reports = []
    for node_rank in order:
        journal_path(runs, "a", node_rank=node_rank).write_bytes(journals[node_rank])
        reports.append(ingest(engine, runs))
    attempt, run = the_attempt(engine, "a"), the_run(engine, "a")
    assert [host["host_name"] for host in attempt.hosts] == ["n0", "n1"]
    assert attempt.started_at == START + 1
    assert run.device_name == "T4 + Xeon"
    assert run.step == 1
    (problem,) = [problem for report in reports for problem in of_runs(report)]
    assert "node-00001.jsonl:4 of kind step is on node 1" in problem
    with Session(engine) as session:
        samples = session.scalars(select(SystemSample).order_by(SystemSample.node_rank)).all()
        assert [(sample.node_rank, sample.line, sample.gpus) for sample in samples] == [(0, 2, []), (1, 2, [])]
        assert session.scalars(select(Profile)).one().node_rank == 1
    assert every_row(engine) == rebuilt(runs, tmp_path)


def test_hosts_line_replaces_hosts_of_node_journals(engine: Engine, runs: Path) -> None:
    hosts = [{"node_rank": 1, "host_name": "one"}, {"node_rank": 0, "host_name": "zero"}]
    journal_path(runs, "a").write_bytes(numbered([attempt_line("a"), {"kind": "hosts", "hosts": hosts}]))
    journal_path(runs, "a", node_rank=1).write_bytes(numbered([attempt_line("a", host={"host_name": "other"})]))
    ingest(engine, runs)
    assert [host["host_name"] for host in the_attempt(engine, "a").hosts] == ["zero", "one"]


def test_repeated_steps_and_steps_after_the_end_are_skipped(engine: Engine, runs: Path) -> None:
    path = journal_path(runs, "a")
    path.write_bytes(
        numbered([attempt_line("a"), step_line(1), step_line(3), step_line(3), step_line(2), end_line(3), step_line(4)])
    )
    problems = of_runs(ingest(engine, runs))
    assert len(problems) == 2
    assert any("has 2 steps that repeat or follow the end" in problem for problem in problems)
    path.write_bytes(path.read_bytes() + numbered([step_line(5)], first=8))
    assert len(of_runs(ingest(engine, runs))) == 1
    with Session(engine) as session:
        assert session.scalars(select(Step.step).where(Step.run_id == "a")).all() == [1, 3]
    assert the_attempt(engine, "a").train_time_s == 40.0


def test_checkpoints_keep_their_line(engine: Engine, runs: Path) -> None:
    line = {"kind": "checkpoint", "step": 1, "path": "checkpoints/step-00000001", "bytes": 2**40, "reason": "final"}
    journal_path(runs, "a").write_bytes(numbered([attempt_line("a"), step_line(1), line]))
    ingest(engine, runs)
    with Session(engine) as session:
        checkpoint = session.scalars(select(Checkpoint)).one()
    assert (checkpoint.line, checkpoint.bytes, checkpoint.save_time_s) == (3, 2**40, None)


def test_queue_wait_comes_from_the_scheduler_or_the_run_id(engine: Engine, runs: Path) -> None:
    made_at = 1784386109.5
    run_id = str(ULID.from_timestamp(made_at))
    first = attempt_line(run_id, scheduler={"kind": "slurm", "started_at": made_at + 60})
    second = attempt_line(run_id, 2, scheduler={"started_at": made_at + 500, "submitted_at": made_at + 400})
    third = attempt_line(run_id, 3, scheduler={"started_at": made_at + 900, "submitted_at": "soon"})
    for number, line in enumerate((first, second, third), 1):
        journal_path(runs, run_id, number).write_bytes(numbered([line], start=made_at + 70))
    ingest(engine, runs)
    waits = [the_attempt(engine, run_id, number).queue_wait_s for number in (1, 2, 3)]
    assert waits == [pytest.approx(60), pytest.approx(100), None]
    assert the_run(engine, run_id).created_at == pytest.approx(made_at)


def test_throughput_excludes_warm_up_steps(engine: Engine, runs: Path) -> None:
    write_run(runs, "a")
    ingest(engine, runs)
    run = the_run(engine, "a")
    seconds = 0.1 * 3 + 0.1 * 4 + 0.1 * 5
    assert run.samples_per_s == pytest.approx(48 / seconds)
    assert run.tokens_per_s == pytest.approx((2003 + 2004 + 2005) / seconds)


def test_phases_of_setup_and_end_are_kept_together(engine: Engine, runs: Path) -> None:
    setup = setup_line(phases={"import": 2.5, "features": 30})
    lines = [attempt_line("a"), setup, step_line(1), end_line(1, phases={"export": 1.25, "features": 31})]
    journal_path(runs, "a").write_bytes(numbered(lines))
    ingest(engine, runs)
    assert the_attempt(engine, "a").phases == {"import": 2.5, "features": 31, "export": 1.25}


@pytest.mark.parametrize("phases", [[1], {"import": "long"}, {"import": -1}, {str(number): 1 for number in range(51)}])
def test_phases_of_wrong_types_are_refused(engine: Engine, runs: Path, phases: object) -> None:
    journal_path(runs, "a").write_bytes(numbered([attempt_line("a"), setup_line(phases=phases)]))
    (problem,) = of_runs(ingest(engine, runs))
    assert "which is not an object of at most 50 names with seconds: skipped" in problem
    assert the_attempt(engine, "a").phases == {}
