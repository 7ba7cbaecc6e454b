"""Series over steps, and the steps of a killed run that count."""

from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from db import queries
from db.ingest.update import ingest
from tests.support.dashboard_data import AttemptSpec, write_run
from tests.support.query_runs import KILLED, NOW, PLAIN


def test_lineage_ends_where_a_newer_attempt_began(session: Session) -> None:
    lineage = queries.lineage_of(session, KILLED.run_id)
    assert [(part.first_step, part.last_step, part.kept_through) for part in lineage] == [
        (1, 130, 100),
        (101, 160, 160),
        (161, 200, 200),
    ]
    assert [part.num_redone for part in lineage] == [30, 0, 0]


def test_lineage_of_an_attempt_redone_completely(engine: Engine, tmp_path: Path) -> None:
    attempts = (
        AttemptSpec(1, 20, NOW - 900, None),
        AttemptSpec(11, 25, NOW - 800, None),
        AttemptSpec(6, 30, NOW - 700),
    )
    write_run(tmp_path / "runs", replace(PLAIN, attempts=attempts))
    ingest(engine, tmp_path / "runs")
    with Session(engine) as session:
        lineage = queries.lineage_of(session, PLAIN.run_id)
        steps = queries.steps_of(session, PLAIN.run_id)
    assert [part.num_redone for part in lineage] == [15, 15, 0]
    assert [(row.step, row.attempt) for row in steps] == [(step, 1 if step < 6 else 3) for step in range(1, 31)]


def test_steps_are_those_of_the_newest_attempt_in_order(session: Session) -> None:
    steps = queries.steps_of(session, KILLED.run_id, limit=1000)
    assert [row.step for row in steps] == list(range(1, 201))
    assert {row.attempt for row in steps if 101 <= row.step <= 130} == {2}


def test_steps_are_paged_by_their_number(session: Session) -> None:
    first = queries.steps_of(session, KILLED.run_id, limit=150)
    rest = queries.steps_of(session, KILLED.run_id, after=first[-1].step, limit=150)
    assert [row.step for row in first + rest] == list(range(1, 201))


def test_loss_series_keeps_every_step_while_they_fit(session: Session) -> None:
    points = queries.loss_series(session, KILLED.run_id)
    assert [point.last_step for point in points] == list(range(1, 201))
    assert [point.loss for point in points] == [row.loss for row in queries.steps_of(session, KILLED.run_id)]


def test_loss_series_keeps_the_extremes_when_thinned(session: Session) -> None:
    losses = [row.loss for row in queries.steps_of(session, KILLED.run_id) if row.loss is not None]
    points = queries.loss_series(session, KILLED.run_id, max_points=20)
    assert len(points) <= 30
    assert max(point.loss_max for point in points if point.loss_max is not None) == max(losses)
    assert min(point.loss_min for point in points if point.loss_min is not None) == min(losses)
    assert sum(point.last_step - point.first_step + 1 for point in points) == 200


def test_redone_steps_are_a_separate_series(session: Session) -> None:
    points = queries.loss_series(session, KILLED.run_id, redone=True)
    assert [(point.attempt, point.last_step) for point in points] == [(1, step) for step in range(101, 131)]
    assert queries.loss_series(session, PLAIN.run_id, redone=True) == []


def test_throughput_is_features_over_time_with_warmup_separate(session: Session) -> None:
    points = queries.throughput_series(session, PLAIN.run_id, max_points=10)
    steps = queries.steps_of(session, PLAIN.run_id)
    steady = [row for row in steps if not row.is_warmup]
    for point in points:
        within = [row for row in steps if point.first_step <= row.step <= point.last_step]
        same = [row for row in within if row.is_warmup == point.is_warmup]
        features, seconds = sum(row.num_features or 0 for row in same), sum(row.step_time_s or 0 for row in same)
        assert point.samples_per_s == pytest.approx(features / seconds)
    assert sum(point.is_warmup for point in points) == 1
    assert sum(point.last_step - point.first_step + 1 for point in points if not point.is_warmup) == len(steady)


def test_time_shares_add_up_to_the_wall_clock(session: Session) -> None:
    run = queries.get_run(session, KILLED.run_id, NOW)
    attempts = queries.attempts_of(session, KILLED.run_id, NOW)
    shares = {share.what: share.seconds for share in queries.time_shares(session, KILLED.run_id, attempts)}
    assert sum(shares.values()) == pytest.approx(run.wall_clock_s)
    assert shares["setup"] == pytest.approx(24.0)
    assert shares["redone steps"] > 0
    ends = [attempt.ended_at or attempt.last_seen_at for attempt in attempts]
    assert shares["waits"] == pytest.approx(
        sum(after.started_at - end for after, end in zip(attempts[1:], ends, strict=False))
    )
