"""A thread that ingests new journal lines into the database while the server runs."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from db.engine import DatabaseError, migrate

logger = logging.getLogger(__name__)


class IngestThread:
    """Context manager: ingests at an interval while its block runs."""

    def __init__(self, engine: Engine, ingest: Callable[[], object], interval_s: float) -> None:
        self._engine = engine
        self._ingest = ingest
        self._interval_s = interval_s
        self._file = _file_identity(engine)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ingest", daemon=True)

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the thread after the ingest in progress."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._reopen_if_replaced()
                self._ingest()
            except (DatabaseError, SQLAlchemyError, OSError):
                # A full disk or a busy database is temporary; until then pages show what is already ingested.
                logger.exception("ingest failed, trying again in %s s", self._interval_s)
            self._stop.wait(self._interval_s)

    def _reopen_if_replaced(self) -> None:
        """Reopen a SQLite file that was deleted or replaced; open connections would keep using the old one."""
        if self._engine.dialect.name != "sqlite":
            return
        current = _file_identity(self._engine)
        if current is None or current != self._file:
            self._engine.dispose()
            migrate(self._engine)
            self._file = _file_identity(self._engine)


def _file_identity(engine: Engine) -> tuple[int, int] | None:
    """Return device and inode of a SQLite database's file, or None if there is no file."""
    try:
        status = Path(engine.url.database or "").stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
