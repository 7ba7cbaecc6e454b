"""A thread that ingests new journal lines into the database while the server runs."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from db.engine import DatabaseError, migrate

logger = logging.getLogger(__name__)


@contextmanager
def ingest_thread(engine: Engine, ingest: Callable[[], object], interval_s: float) -> Iterator[None]:
    """Ingest at an interval while the block runs, in a thread; the ingest in progress ends before the block does."""
    stop = threading.Event()
    thread = threading.Thread(target=_run, args=(engine, ingest, interval_s, stop), name="ingest", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _run(engine: Engine, ingest: Callable[[], object], interval_s: float, stop: threading.Event) -> None:
    opened = _file_identity(engine)
    while not stop.is_set():
        try:
            current = _file_identity(engine)
            if engine.dialect.name == "sqlite" and (current is None or current != opened):
                # The database file was deleted or replaced: close the connections, which would keep using the old file.
                engine.dispose()
                migrate(engine)
                opened = _file_identity(engine)
            ingest()
        except (DatabaseError, SQLAlchemyError, OSError):
            # Try again later: a full disk or a busy database is temporary. Until then pages show what is already
            # ingested.
            logger.exception("ingest failed, trying again in %s s", interval_s)
        stop.wait(interval_s)


def _file_identity(engine: Engine) -> tuple[int, int] | None:
    """Return device and inode of a SQLite database's file, or None if there is no file."""
    try:
        status = Path(engine.url.database or "").stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
