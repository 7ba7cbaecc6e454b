"""What the database holds, for tests to compare."""

from pathlib import Path
from typing import Any

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from db.engine import create_engine_for, migrate
from db.ingest.update import IngestReport, ingest
from db.models import Attempt, Base, Run


def every_row(engine: Engine) -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows of all tables, in the order of their keys."""
    with engine.connect() as connection:
        return {
            table.name: [tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key))]
            for table in Base.metadata.sorted_tables
        }


def rebuilt(runs: Path, folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of a new database that has read everything at once."""
    engine = create_engine_for(f"sqlite:///{folder / 'rebuilt.db'}")
    migrate(engine)
    ingest(engine, runs)
    rows = every_row(engine)
    engine.dispose()
    (folder / "rebuilt.db").unlink()
    return rows


def the_run(engine: Engine, run_id: str) -> Run:
    """Return the row of a run."""
    with Session(engine) as session:
        return session.scalars(select(Run).where(Run.run_id == run_id)).one()


def the_attempt(engine: Engine, run_id: str, attempt: int = 1) -> Attempt:
    """Return the row of an attempt."""
    with Session(engine) as session:
        return session.get_one(Attempt, (run_id, attempt))


def of_runs(report: IngestReport) -> list[str]:
    """Return the problems of an ingest as texts."""
    return [str(problem) for problem in report.problems]
