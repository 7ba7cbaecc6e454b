"""Sessions on the database for commands, after an ingest of the journals."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from sqlalchemy.orm import Session

from db.engine import create_engine_for, database_errors
from db.ingest.update import update_database
from db.reports.cells import text
from db.storage.home import database_url


def update(environ: Mapping[str, str]) -> None:
    """Ingest the journals, and print one line if some of their lines could not be read.

    Raises:
        DatabaseError: the database cannot be used.
    """
    report = update_database(environ)
    if report.problems:
        first = text(report.problems[0])
        sys.stderr.write(f"{len(report.problems)} problems in journals, the first: {first}\n")


@contextmanager
def updated_session(environ: Mapping[str, str]) -> Iterator[Session]:
    """Give a session on the database after an update.

    Raises:
        DatabaseError: the database cannot be used.
    """
    update(environ)
    engine = create_engine_for(database_url(environ))
    try:
        with database_errors(engine), Session(engine) as session:
            yield session
    finally:
        engine.dispose()
