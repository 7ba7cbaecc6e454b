"""A dashboard on a home directory, and the runs that several tests look at."""

from pathlib import Path

from fastapi.testclient import TestClient

from dashboard.app import create_app
from dashboard.settings import Settings
from db.engine import create_engine_for, migrate
from db.ingest.update import ingest
from tests.support.dashboard_data import RunSpec, ulid, write_run

NOW = 1_800_000_000.0
KILLED, RUNNING, LOST = ulid(100), ulid(104), ulid(103)
HOSTILE = "</script><img src=x onerror=alert(1)>\u2028\"'&"
MOST_BYTES = 100_000


def pages_of(run_id: str) -> tuple[str, ...]:
    """Return the addresses of the overview pages and of all pages of a run."""
    run = f"/runs/{run_id}"
    return ("/runs", "/speedup", "/throughput", "/profiler", run, f"{run}/profile", f"{run}/predictions")


def client_on(home: Path, *runs: RunSpec) -> TestClient:
    """Return a client of a dashboard on a home directory, after writing these runs and ingesting all."""
    for spec in runs:
        write_run(home / "runs", spec)
    ingest_home(home)
    settings = Settings(
        home=home, database_url=f"sqlite:///{home / 'record.db'}", is_auth_on=False, ingest_interval_s=3600
    )
    return TestClient(create_app(settings, clock=lambda: NOW), base_url="http://localhost")


def ingest_home(home: Path) -> None:
    """Ingest the runs of a home directory into its database."""
    engine = create_engine_for(f"sqlite:///{home / 'record.db'}")
    migrate(engine)
    ingest(engine, home / "runs")
    engine.dispose()
