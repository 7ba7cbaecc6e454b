"""The benchmark of the dashboard on a small record; its times are not checked."""

import json
from pathlib import Path

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from benchmarks.record.dashboard_speed import PAGES, measure, served, table
from benchmarks.record.fill_database import fill
from db import queries
from db.engine import create_engine_for
from db.models import Run, Step
from tests.support.paths import REPOSITORY

RESULTS = sorted((REPOSITORY / "benchmarks" / "results").glob("dashboard-*.json"))


@pytest.mark.slow
def test_record_is_filled_and_every_page_is_measured(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'speed.db'}"
    engine = create_engine_for(url)
    fill(engine, num_runs=60, num_steps=1200)
    with Session(engine) as session:
        assert session.scalar(select(func.count()).select_from(Run)) == 60
        assert session.scalar(select(func.count()).select_from(Step)) == 1200
        run_id = session.scalars(select(Run.run_id).order_by(Run.created_at.desc())).first()
        assert run_id is not None
        assert [step.step for step in queries.steps_of(session, run_id)] == list(range(1, 21))
        assert len(queries.speedup_groups(session)) == 12
    engine.dispose()
    with served(url) as connection:
        for page in PAGES:
            found = measure(connection, page.format(run_id=run_id), repeats=2)
            assert 0 < found["p50_ms"] <= found["p95_ms"]
            assert 0 < found["bytes_gz"] < 100_000


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: str(path.name))
def test_readme_has_the_table_of_the_results(path: Path) -> None:
    printed = table(json.loads(path.read_text(encoding="utf-8")))
    assert printed in (REPOSITORY / "benchmarks" / "README.md").read_text(encoding="utf-8")
