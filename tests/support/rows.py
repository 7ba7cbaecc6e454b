"""What the database holds, for tests to compare."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from db.engine import create_engine_for, migrate
from db.ingest.update import IngestReport, ingest
from db.models import Attempt, Base, Run
from tests.support.journals import journal_path, write_run


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


def schema_differences(engine: Engine) -> list[Any]:
    """Return what differs between the models and the tables of a database."""
    with engine.connect() as connection:
        differences: list[Any] = compare_metadata(
            MigrationContext.configure(connection, opts={"compare_type": True}), Base.metadata
        )
    return differences


def migrate_at_once(url: str, num_processes: int = 4) -> None:
    """Migrate a database from several threads that begin together, each with an engine of its own."""
    start = threading.Barrier(num_processes)

    def migrate_anew() -> None:
        engine = create_engine_for(url)
        start.wait()
        migrate(engine)
        engine.dispose()

    with ThreadPoolExecutor(num_processes) as pool:
        for future in [pool.submit(migrate_anew) for _ in range(num_processes)]:
            future.result()


def ingest_at_once(url: str, runs: Path, folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Ingest from three threads while four journals are written piece by piece; return all rows."""
    sources = {name: write_run(folder / "source", name, num_steps=30).read_bytes() for name in "abcd"}
    is_written = threading.Event()

    def read_until_written() -> None:
        engine = create_engine_for(url)
        migrate(engine)
        is_last = False
        while not is_last:
            is_last = is_written.is_set()
            ingest(engine, runs)
        engine.dispose()

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read_until_written) for _ in range(3)]
        for end in [*range(0, 15_000, 1500), None]:
            for name, source in sources.items():
                journal_path(runs, name).write_bytes(source[:end])
        is_written.set()
        for reader in readers:
            reader.result()
    engine = create_engine_for(url)
    rows = every_row(engine)
    engine.dispose()
    return rows
