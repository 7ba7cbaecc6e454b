"""The table of runs: filters, order, pages, and filter choices."""

from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from db import queries
from db.models import Run
from db.queries import RunFilters, RunOrder
from db.queries.runs import LOST_AFTER_S, SortColumn
from tests.support.query_runs import KILLED, LOST, NOW, PLAIN, RUNNING


def ids(page: queries.RunPage) -> list[str]:
    return [row.run_id for row in page.rows if row.provenance == "measured"]


def test_runs_are_listed_newest_first(session: Session) -> None:
    page = queries.list_runs(session, NOW, RunFilters(provenance="measured"))
    created = [row.created_at for row in page.rows]
    assert created == sorted(created, reverse=True)
    assert page.num_matching == 4
    assert page.num_all > page.num_matching


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (RunFilters(status="lost"), {LOST.run_id}),
        (RunFilters(status="running"), {RUNNING.run_id}),
        (RunFilters(recipe="demo"), {RUNNING.run_id, LOST.run_id}),
        (RunFilters(parallel="none", provenance="measured"), {PLAIN.run_id}),
        (RunFilters(recipe="squad", status="finished", provenance="measured"), {KILLED.run_id, PLAIN.run_id}),
        (RunFilters(device_name="NVIDIA T4"), set()),
    ],
)
def test_filters_select_matching_runs(session: Session, filters: RunFilters, expected: set[str]) -> None:
    page = queries.list_runs(session, NOW, filters)
    assert set(ids(page)) == expected
    assert page.num_matching == len(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("KILLED and", {KILLED.run_id}),
        ("élast", {KILLED.run_id}),
        (PLAIN.run_id[-4:], {PLAIN.run_id}),
        ("0%_d", {RUNNING.run_id}),
        ("_", {RUNNING.run_id}),
        ("nowhere", set()),
    ],
)
def test_text_filter_searches_name_id_and_tags(session: Session, text: str, expected: set[str]) -> None:
    assert set(ids(queries.list_runs(session, NOW, RunFilters(text=text)))) == expected


@pytest.mark.parametrize("sort", SortColumn.__args__)  # type: ignore[attr-defined]
@pytest.mark.parametrize("direction", ["asc", "desc"])
def test_every_column_sorts_with_unknown_values_last(session: Session, sort: SortColumn, direction: Any) -> None:
    rows = queries.list_runs(session, NOW, order=RunOrder(sort, direction), limit=1000).rows
    values = [row.name or row.run_id if sort == "name" else getattr(row, sort) for row in rows]
    known = [value.lower() if sort == "name" else value for value in values if value is not None]
    assert known == sorted(known, reverse=direction == "desc")
    assert None not in values[: len(known)]


def test_pages_follow_one_another_without_gap(session: Session) -> None:
    order = RunOrder("recipe", "asc")
    whole = [row.run_id for row in queries.list_runs(session, NOW, order=order, limit=100).rows]
    parts = [
        row.run_id
        for offset in range(0, len(whole), 3)
        for row in queries.list_runs(session, NOW, order=order, limit=3, offset=offset).rows
    ]
    assert parts == whole


def test_filter_choices_count_every_value_and_lost_runs_separately(session: Session) -> None:
    choices = queries.list_runs(session, NOW, RunFilters(recipe="demo")).choices
    statuses = dict(choices["status"])
    assert (statuses["lost"], statuses["running"]) == (1, 1)
    assert dict(choices["recipe"])["demo"] == 2
    later = dict(queries.list_runs(session, NOW + 3600).choices["status"])
    assert (later["lost"], later.get("running")) == (2, None)


def test_unknown_run_is_named_in_the_error(session: Session) -> None:
    with pytest.raises(queries.RunNotFoundError, match="run_id='nope' is not in the record") as caught:
        queries.get_run(session, "nope", NOW)
    assert caught.value.run_id == "nope"


def test_run_has_the_values_of_its_journal(session: Session) -> None:
    run = queries.get_run(session, KILLED.run_id, NOW)
    assert (run.status, run.num_attempts, run.world_size, run.step) == ("finished", 3, 4, 200)
    assert run.config["learning_rate"] == 4e-5
    assert run.em is not None


@pytest.mark.parametrize(
    ("status", "age_s", "expected"),
    [
        ("running", 0.0, "running"),
        ("running", LOST_AFTER_S, "running"),
        ("running", LOST_AFTER_S + 0.001, "lost"),
        ("running", None, "lost"),
        ("finished", 1e9, "finished"),
        ("failed", 1e9, "failed"),
        ("preempted", 1e9, "preempted"),
    ],
)
def test_only_a_silent_running_run_is_lost(session: Session, status: str, age_s: float | None, expected: str) -> None:
    session.execute(update(Run).values(status=status, last_seen_at=None if age_s is None else NOW - age_s))
    assert queries.get_run(session, PLAIN.run_id, NOW).status == expected
