"""Attempts, evaluations, checkpoints, events and samples of a run."""

from sqlalchemy.orm import Session

from db import queries
from tests.support.query_runs import KILLED, NOW


def test_older_attempt_without_an_end_is_lost(session: Session) -> None:
    attempts = queries.attempts_of(session, KILLED.run_id, NOW - 5_000 + 30)
    assert [attempt.status for attempt in attempts] == ["lost", "preempted", "finished"]


def test_evaluation_that_was_redone_counts_once(session: Session) -> None:
    rows = queries.evaluations_of(session, KILLED.run_id)
    assert [(row.step, row.attempt) for row in rows] == [(50, 1), (100, 1), (150, 2), (200, 3)]


def test_checkpoints_and_events_are_the_newest_first(session: Session) -> None:
    steps = [row.step for row in queries.checkpoints_of(session, KILLED.run_id)]
    assert steps == [200, 150, 100, 50]
    events = queries.events_of(session, KILLED.run_id, limit=2)
    assert [(row.name, row.attempt) for row in events] == [("resume", 3), ("signal", 2)]


def test_system_samples_are_thinned_evenly_on_every_node(session: Session) -> None:
    every = queries.system_samples_of(session, KILLED.run_id, max_points=10**9)
    some = queries.system_samples_of(session, KILLED.run_id, max_points=12)
    assert len(some) < len(every) / 2
    assert {row.node_rank for row in some} == {0, 1}
    assert {row.attempt for row in some} == {1, 2, 3}


def test_run_without_system_samples_has_none(session: Session) -> None:
    assert queries.system_samples_of(session, "reported-squad") == []
