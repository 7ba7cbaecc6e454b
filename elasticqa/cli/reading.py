"""What commands on the record share: bringing it up to date first, and errors of one line."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from sqlalchemy.orm import Session

from db.engine import create_engine_for, usable
from db.ingest.update import bring_up_to_date
from db.reports.cells import text
from db.storage.home import database_url


def refresh(environ: Mapping[str, str]) -> None:
    """Ingest, and say in one line if something in the journals had to be left out.

    Raises:
        DatabaseError: the database cannot be used.
    """
    report = bring_up_to_date(environ)
    if report.problems:
        first = text(report.problems[0])
        sys.stderr.write(f"{len(report.problems)} problems in journals, the first: {first}\n")


@contextmanager
def fresh_record(environ: Mapping[str, str]) -> Iterator[Session]:
    """Give a session on the record that holds every line written so far.

    Raises:
        DatabaseError: the database cannot be used.
    """
    refresh(environ)
    engine = create_engine_for(database_url(environ))
    try:
        with usable(engine), Session(engine) as session:
            yield session
    finally:
        engine.dispose()


def complain(program: str, error: Exception) -> int:
    """Print an error as one line and return the exit status of a request that cannot be met."""
    sys.stderr.write(f"{program}: {' '.join(str(error).split())}\n")
    return 2
