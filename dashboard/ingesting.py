"""A thread that keeps the index up with the journals while pages read it."""

import logging
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from db.ingest import ingest

logger = logging.getLogger(__name__)


class IngestLoop:
    """Ingests at an interval from entering to leaving its block."""

    def __init__(self, engine: Engine, runs_dir: Path, interval_s: float) -> None:
        self._engine = engine
        self._runs_dir = runs_dir
        self._interval_s = interval_s
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
                ingest(self._engine, self._runs_dir)
            except (SQLAlchemyError, OSError):
                # A full disk or a busy database passes; pages show what was ingested before.
                logger.exception("ingest failed, trying again in %s s", self._interval_s)
            self._stop.wait(self._interval_s)
