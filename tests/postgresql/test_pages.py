"""Pages of the dashboard on PostgreSQL equal those on SQLite."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from dashboard.app import create_app
from dashboard.routes.run_figures import FIGURES
from dashboard.settings import Settings
from db.engine import create_engine_for, migrate
from db.ingest.update import ingest
from tests.support.dashboard_data import ulid
from tests.support.dashboard_lab import write_lab

pytestmark = [pytest.mark.postgresql, pytest.mark.slow]

NOW = 1_800_000_000.0
KILLED = ulid(100)
ADDRESSES = [
    "/api/runs?limit=100",
    "/api/runs?sort=f1&direction=asc",
    "/api/runs?sort=name&direction=asc&page=2&limit=7",
    "/api/runs?sort=status",
    "/api/runs?status=lost",
    "/api/runs?text=SCAL&parallel=ddp",
    "/api/runs?text=0%25",
    f"/api/runs/{KILLED}/steps?after=90&limit=50",
    "/api/speedup",
    "/api/throughput",
    "/healthz",
    "/runs?recipe=squad&sort=wall_clock_s",
    f"/runs/{KILLED}",
    "/speedup",
    "/throughput",
    "/throughput?parallel=ddp",
    "/profiler",
    f"/runs/{KILLED}/profile",
    f"/runs/{KILLED}/predictions?filter=wrong",
    "/figures/profiler.json",
]


@pytest.fixture
def both(tmp_path: Path, postgresql_url: str) -> Iterator[tuple[TestClient, TestClient]]:
    write_lab(tmp_path / "runs", NOW)
    with ExitStack() as stack:
        clients = []
        for url in (f"sqlite:///{tmp_path / 'record.db'}", postgresql_url):
            engine = create_engine_for(url)
            migrate(engine)
            ingest(engine, tmp_path / "runs")
            engine.dispose()
            settings = Settings(home=tmp_path, database_url=url, is_auth_on=False, ingest_interval_s=3600)
            app = create_app(settings, clock=lambda: NOW)
            clients.append(stack.enter_context(TestClient(app, base_url="http://localhost")))
        yield clients[0], clients[1]


def test_pages_on_postgresql_equal_those_on_sqlite(both: tuple[TestClient, TestClient]) -> None:
    for address in ADDRESSES:
        first, second = (client.get(address) for client in both)
        assert (first.status_code, address) == (second.status_code, address) == (200, address)
        assert first.text == second.text, address


def numbers(figure: object) -> list[float]:
    """Return every number of a figure in order."""
    if isinstance(figure, dict):
        return [number for value in figure.values() for number in numbers(value)]
    if isinstance(figure, list):
        return [number for value in figure for number in numbers(value)]
    return [figure] if isinstance(figure, int | float) else []


def test_floats_equal_those_of_sqlite_but_for_the_last_digits(both: tuple[TestClient, TestClient]) -> None:
    # These two use samples thinned by time slots, whose edges the databases round differently.
    for chart in FIGURES.keys() - {"utilization", "memory"}:
        first, second = (numbers(client.get(f"/figures/runs/{KILLED}/{chart}.json").json()) for client in both)
        assert len(first) > 5
        assert first == pytest.approx(second, rel=1e-12)


def test_thinned_samples_are_about_as_many(both: tuple[TestClient, TestClient]) -> None:
    address = f"/figures/runs/{KILLED}/utilization.json"
    first, second = (client.get(address).json()["data"] for client in both)
    assert [trace["name"] for trace in first] == [trace["name"] for trace in second]
    for one, other in zip(first, second, strict=True):
        assert len(one["x"]) == pytest.approx(len(other["x"]), rel=0.1)
