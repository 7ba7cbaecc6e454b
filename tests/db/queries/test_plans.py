"""Query plans use indexes, and the table of runs reads no steps."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

from db import queries
from db.models import Run, Step
from db.queries import RunFilters, RunOrder
from tests.support.query_runs import KILLED, NOW


@pytest.fixture
def statements(engine: Engine) -> Iterator[list[tuple[str, Any]]]:
    """Return every statement that the engine has been given, with its parameters."""
    seen: list[tuple[str, Any]] = []

    def note(*arguments: Any) -> None:
        seen.append((arguments[2], arguments[3]))

    event.listen(engine, "before_cursor_execute", note)
    yield seen
    event.remove(engine, "before_cursor_execute", note)


def plans(session: Session, statements: list[tuple[str, Any]]) -> list[str]:
    connection = session.connection()
    selects = [item for item in statements if item[0].startswith("SELECT")]
    return [
        row.detail
        for text, parameters in selects
        for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", parameters)
    ]


def test_table_of_runs_reads_no_steps(session: Session, statements: list[tuple[str, Any]]) -> None:
    queries.list_runs(session, NOW, RunFilters(text="x", status="lost"), RunOrder("f1"))
    assert statements
    for table in (Step.__tablename__, "evaluations", "events", "system_samples", "checkpoints"):
        assert not [text for text, _ in statements if f"FROM {table}" in text or f"JOIN {table}" in text]


@pytest.mark.parametrize(
    ("filters", "order", "index"),
    [
        (RunFilters(), RunOrder(), "USING INDEX ix_runs_created_at"),
        (RunFilters(recipe="squad"), RunOrder("wall_clock_s"), "USING COVERING INDEX ix_runs_filters"),
    ],
)
def test_runs_are_read_through_an_index(
    filters: RunFilters, order: RunOrder, index: str, session: Session, statements: list[tuple[str, Any]]
) -> None:
    queries.list_runs(session, NOW, filters, order)
    listing = next(item for item in statements if "LIMIT" in item[0])
    (step,) = [plan for plan in plans(session, [listing]) if f"SCAN {Run.__tablename__}" in plan]
    assert index in step


def test_rows_of_a_run_are_found_by_their_key(session: Session, statements: list[tuple[str, Any]]) -> None:
    queries.get_run(session, KILLED.run_id, NOW)
    attempts = queries.attempts_of(session, KILLED.run_id, NOW)
    queries.time_shares(session, KILLED.run_id, attempts)
    queries.loss_series(session, KILLED.run_id)
    queries.throughput_series(session, KILLED.run_id)
    queries.steps_of(session, KILLED.run_id)
    queries.evaluations_of(session, KILLED.run_id)
    queries.checkpoints_of(session, KILLED.run_id)
    queries.events_of(session, KILLED.run_id)
    queries.system_samples_of(session, KILLED.run_id)
    queries.profile_keys(session, KILLED.run_id)
    queries.timeline_of(session, KILLED.run_id, attempts)
    queries.step_speed_of(session, KILLED.run_id)
    tables = {"runs", "attempts", "steps", "evaluations", "checkpoints", "events", "system_samples", "profiles"}
    found = plans(session, statements)
    assert {plan.split()[1] for plan in found if plan.startswith("SEARCH")} >= tables
    assert not [plan for plan in found if plan.startswith("SCAN") and plan.split()[1] in tables]


def test_filter_choices_need_only_an_index(session: Session, statements: list[tuple[str, Any]]) -> None:
    queries.list_runs(session, NOW)
    counting = next(item for item in statements if "GROUP BY" in item[0])
    assert f"SCAN {Run.__tablename__} USING COVERING INDEX ix_runs_filters" in plans(session, [counting])
