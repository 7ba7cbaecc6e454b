"""Traces of a run, and runs with a trace."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from db import queries
from db.ingest.update import ingest
from tests.support.dashboard_data import AttemptSpec, Lines, write_run
from tests.support.dashboard_traces import CPU_PROFILE, gpu_profile
from tests.support.query_runs import KILLED, NOW, PLAIN, RUNNING

NEWER = replace(RUNNING, profile=CPU_PROFILE, device_name="Xeon", device_type="cpu")


@pytest.fixture
def profiled(engine: Engine, tmp_path: Path) -> Iterator[Session]:
    """Yield a record of two runs with traces, one of them with two ranks, and one run without."""
    killed = replace(KILLED, profile=gpu_profile(4))
    for spec in (killed, PLAIN, NEWER):
        write_run(tmp_path / "runs", spec)
    journal = Lines(tmp_path / "runs" / KILLED.run_id / "journal" / "attempt-0003-node-00001.jsonl")
    head = {"schema_version": 1, "run_id": KILLED.run_id, "attempt": 3, "node_rank": 1}
    journal.add(NOW, "attempt", **head, provenance="measured", config={})
    for t, step in ((NOW, 120), (NOW + 1, 180)):
        journal.add(t, "profile", step=step, rank=2, summary=gpu_profile(4), trace=None)
    journal.save()
    ingest(engine, tmp_path / "runs")
    with Session(engine) as session:
        yield session


def test_traces_are_in_the_order_of_attempt_rank_and_age(profiled: Session) -> None:
    keys = queries.profile_keys(profiled, KILLED.run_id)
    assert [(key.attempt, key.rank, key.step) for key in keys] == [(3, 0, 200), (3, 2, 180), (3, 2, 120)]
    chosen = queries.profile_of(profiled, KILLED.run_id, keys[0])
    assert chosen.trace == "traces/attempt-0003-rank-00000.json.gz"
    assert len(chosen.summary.devices) == 1


def test_run_without_a_trace_has_none(profiled: Session) -> None:
    assert queries.has_profile(profiled, KILLED.run_id)
    assert not queries.has_profile(profiled, PLAIN.run_id)
    assert queries.profile_keys(profiled, PLAIN.run_id) == []


def test_profiled_runs_are_the_newest_first_each_by_its_lowest_rank(profiled: Session) -> None:
    page = queries.list_profiled_runs(profiled)
    assert [row.run_id for row in page.rows] == [NEWER.run_id, KILLED.run_id]
    by_id = {row.run_id: row for row in page.rows}
    assert (by_id[KILLED.run_id].profile.rank, by_id[KILLED.run_id].profile.step) == (0, 200)
    assert by_id[NEWER.run_id].profile.summary.devices == ()
    assert page.num_matching == 2
    assert page.devices == ((KILLED.device_name, 1), ("Xeon", 1))


def test_profiled_runs_are_filtered_and_paged(profiled: Session) -> None:
    on_xeon = queries.list_profiled_runs(profiled, "Xeon")
    assert [row.run_id for row in on_xeon.rows] == [NEWER.run_id]
    assert on_xeon.num_matching == 1
    pages = [queries.list_profiled_runs(profiled, limit=1, offset=offset) for offset in (0, 1, 2)]
    assert [len(page.rows) for page in pages] == [1, 1, 0]
    assert {row.run_id for page in pages for row in page.rows} == {KILLED.run_id, NEWER.run_id}
    assert queries.list_profiled_runs(profiled, "Tesla T4").num_matching == 0


def test_trace_of_the_newest_attempt_represents_the_run(engine: Engine, tmp_path: Path) -> None:
    spec = replace(PLAIN, profile=CPU_PROFILE, attempts=(AttemptSpec(1, 10, NOW - 90, None),))
    write_run(tmp_path / "runs", spec)
    write_run(
        tmp_path / "elsewhere",
        replace(spec, attempts=(AttemptSpec(1, 10, NOW - 90, None), AttemptSpec(1, 20, NOW - 50))),
    )
    name = "attempt-0002-node-00000.jsonl"
    second = tmp_path / "elsewhere" / spec.run_id / "journal" / name
    second.rename(tmp_path / "runs" / spec.run_id / "journal" / name)
    ingest(engine, tmp_path / "runs")
    with Session(engine) as session:
        assert [key.attempt for key in queries.profile_keys(session, spec.run_id)] == [2, 1]
        assert queries.list_profiled_runs(session).rows[0].profile.attempt == 2
