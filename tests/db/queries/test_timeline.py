"""Timeline and time shares of a run."""

from dataclasses import replace
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from db import queries
from db.ingest.update import ingest
from tests.support.dashboard_data import AttemptSpec, write_run
from tests.support.query_runs import KILLED, NOW, PLAIN


def timeline(session: Session, run_id: str) -> list[queries.AttemptSpan]:
    return queries.timeline_of(session, run_id, queries.attempts_of(session, run_id, NOW))


def test_lost_time_begins_at_the_last_kept_step(session: Session) -> None:
    first, second, third = timeline(session, KILLED.run_id)
    assert (first.status, first.num_redone, first.first_step, first.last_step) == ("lost", 30, 1, 130)
    hundredth = next(step for step in queries.steps_of(session, KILLED.run_id, after=99, limit=1))
    assert first.lost_since == hundredth.t
    assert first.started_at < hundredth.t < first.ended_at
    assert (second.lost_since, third.lost_since) == (None, None)
    assert {stretch.world_size for stretch in (first, second, third)} == {4}
    assert second.reason == "all steps done"


def test_attempt_redone_completely_lost_all_its_steps(engine: Engine, tmp_path: Path) -> None:
    attempts = (AttemptSpec(1, 20, NOW - 900, None), AttemptSpec(1, 25, NOW - 800))
    write_run(tmp_path / "runs", replace(PLAIN, attempts=attempts))
    ingest(engine, tmp_path / "runs")
    with Session(engine) as session:
        first, _ = timeline(session, PLAIN.run_id)
    assert first.num_redone == 20
    assert first.lost_since == first.started_at


def test_attempts_without_a_world_size_are_skipped(session: Session) -> None:
    attempts = queries.attempts_of(session, KILLED.run_id, NOW)
    attempts[1] = replace(attempts[1], world_size=None)
    stretches = queries.timeline_of(session, KILLED.run_id, attempts)
    assert [stretch.attempt for stretch in stretches] == [1, 3]
    assert [stretch.attempt for stretch in queries.timeline_of(session, KILLED.run_id, attempts, limit=1)] == [3]


def test_results_without_start_and_end_have_no_time_shares(session: Session) -> None:
    def shares_of(run_id: str) -> list[queries.TimeShare]:
        return queries.time_shares(session, run_id, queries.attempts_of(session, run_id, NOW))

    assert queries.evaluations_of(session, "reported-squad")[0].eval_time_s is not None
    assert shares_of("reported-squad") == []
    assert "steps" in {share.what for share in shares_of(PLAIN.run_id)}
