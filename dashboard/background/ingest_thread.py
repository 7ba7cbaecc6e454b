"""A thread that keeps the index up with the journals while pages read it."""

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


class IngestLoop:
    """Ingests at an interval from entering to leaving its block."""

    def __init__(self, engine: Engine, ingest: Callable[[], object], interval_s: float) -> None:
        self._engine = engine
        self._ingest = ingest
        self._interval_s = interval_s
        self._file = _file_of(engine)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ingest", daemon=True)

    def __enter__(self) -> Self:
        """Start."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop after the ingest that is under way."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._reopen_if_replaced()
                self._ingest()
            except (DatabaseError, SQLAlchemyError, OSError):
                # A full disk or a busy database passes; pages show what was ingested before.
                logger.exception("ingest failed, trying again in %s s", self._interval_s)
            self._stop.wait(self._interval_s)

    def _reopen_if_replaced(self) -> None:
        """Leave a database file that has been deleted or replaced: open connections would go on with the old one."""
        if self._engine.dialect.name != "sqlite":
            return
        now = _file_of(self._engine)
        if now is None or now != self._file:
            self._engine.dispose()
            migrate(self._engine)
            self._file = _file_of(self._engine)


def _file_of(engine: Engine) -> tuple[int, int] | None:
    """Return which file SQLite's name stands for now; None where there is none."""
    try:
        found = Path(engine.url.database or "").stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
