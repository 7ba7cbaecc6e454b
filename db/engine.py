"""Database engines and migrations: SQLite shared by several processes, or PostgreSQL."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError

BUSY_TIMEOUT_MS = 30_000
"""Time that a writer waits for another writer."""
MIGRATIONS = Path(__file__).parent / "migrations"
_IMMEDIATE = "record_writer"


class DatabaseError(RuntimeError):
    """A database that cannot be used; the message is one line and names a remedy."""


def create_engine_for(url: str) -> Engine:
    """Return an engine; creates the directory of a SQLite file, but no schema (see `migrate`).

    Raises:
        DatabaseError: the URL is invalid, its driver is not installed, or the directory cannot be created.
    """
    try:
        parsed = make_url(url)
        if parsed.drivername in ("postgres", "postgresql"):
            # Set the driver: SQLAlchemy's default is psycopg2, but elasticqa[postgresql] installs psycopg.
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.get_backend_name() != "sqlite":
            return create_engine(parsed, pool_pre_ping=True)
        if parsed.database and parsed.database != ":memory:":
            # Mode 0700: if machines share the home, this may be a directory in /tmp, which other users can write.
            Path(parsed.database).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        engine = create_engine(parsed)
    except (ArgumentError, ModuleNotFoundError) as error:
        # The message omits the URL: an invalid one may contain a password.
        raise DatabaseError(
            f"the database URL cannot be used ({error}): ELASTICQA_DB_URL is sqlite:///FILE or "
            "postgresql://USER@HOST/NAME, the latter with elasticqa[postgresql] installed"
        ) from error
    except OSError as error:
        raise DatabaseError(
            f"{parsed.database} cannot be created ({error.strerror}): set ELASTICQA_HOME or ELASTICQA_DB_URL to a "
            "directory that you can write"
        ) from error
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def write_locked(engine: Engine) -> Engine:
    """Return the engine with transactions that take SQLite's write lock when they begin.

    Otherwise a transaction that reads first and writes later fails if another one has written in between.
    """
    return engine.execution_options(**{_IMMEDIATE: True})


def lock(connection: Connection, name: str) -> None:
    """Hold the lock `name` until the transaction ends; SQLite has only one writing transaction anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"), {"name": name})


def migrate(engine: Engine) -> None:
    """Upgrade the schema to the newest revision; several processes may do so at once.

    Raises:
        DatabaseError: the database is newer than this release, or cannot be reached or written.
    """
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    scripts = ScriptDirectory.from_config(config)
    newest = scripts.get_current_head()
    known = {script.revision for script in scripts.walk_revisions()}
    with database_errors(engine):
        with engine.connect() as connection:
            if _revision(connection, known) == newest:
                return
        with write_locked(engine).begin() as connection:
            lock(connection, "migrate")
            if _revision(connection, known) != newest:
                config.attributes["connection"] = connection
                command.upgrade(config, "head")


@contextmanager
def database_errors(engine: Engine) -> Iterator[None]:
    """Raise errors of the database driver as DatabaseError, on one line.

    Raises:
        DatabaseError: the database is unreachable, locked, full, damaged, or access is denied.
    """
    try:
        yield
    except DBAPIError as error:
        reason = str(error.orig).strip().partition("\n")[0]
        url = engine.url.render_as_string(hide_password=True)
        raise DatabaseError(
            f"database {url} cannot be used ({reason}): check ELASTICQA_DB_URL and ELASTICQA_HOME"
        ) from error


@contextmanager
def open_database(url: str) -> Iterator[Engine]:
    """Yield the engine of a database after `migrate`.

    Raises:
        DatabaseError: the database cannot be used.
    """
    engine = create_engine_for(url)
    try:
        migrate(engine)
        with database_errors(engine):
            yield engine
    finally:
        engine.dispose()


def _revision(connection: Connection, known: set[str]) -> str | None:
    revision = MigrationContext.configure(connection).get_current_revision()
    if revision is not None and revision not in known:
        url = connection.engine.url.render_as_string(hide_password=True)
        raise DatabaseError(
            f"database {url} is at revision {revision}, unknown to this release: upgrade elasticqa, "
            "or set ELASTICQA_DB_URL to another database; `elasticqa ingest` fills it from the journals"
        )
    return revision


def _prepare_sqlite(connection: Any, _: object) -> None:
    # Turn off the driver's BEGIN, which comes too late and takes no write lock; _begin_sqlite replaces it.
    connection.isolation_level = None
    cursor = connection.cursor()
    # Set the timeout first: the change to WAL may wait for another process.
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    _use_wal(cursor)
    cursor.execute("PRAGMA synchronous = NORMAL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _use_wal(cursor: sqlite3.Cursor) -> None:
    # Retry: SQLite does not apply its busy timeout to this statement.
    until = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


def _begin_sqlite(connection: Connection) -> None:
    is_writer = connection.get_execution_options().get(_IMMEDIATE, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writer else "BEGIN")
