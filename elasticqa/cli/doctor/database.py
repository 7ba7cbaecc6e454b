"""The database: is the SQLite file lockable, or does the server answer."""

import sqlite3
import tempfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from sqlalchemy import make_url, text
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from db.engine import DatabaseError, create_engine_for
from db.storage.home import SHARED_FILE_SYSTEMS, database_url, file_system_of, mounted
from elasticqa.cli.doctor.finding import Finding, fail, ok
from elasticqa.errors import one_line


def check(environ: Mapping[str, str]) -> list[Finding]:
    """Check the database of the dashboard and the reports on this machine."""
    mounts = mounted()
    return [check_database(database_url(environ, mounts), mounts)]


def check_database(url: str, mounts: str) -> Finding:
    """Return whether the database can be used, without changing its schema; ``mounts`` is `/proc/self/mountinfo`."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        # Do not print the URL: it may contain a password.
        return fail("database", "ELASTICQA_DB_URL is not a URL", "use sqlite:///FILE or postgresql://USER@HOST/NAME")
    if parsed.get_backend_name() == "sqlite" and parsed.database not in (None, "", ":memory:"):
        return check_sqlite(Path(str(parsed.database)), mounts)
    shown = parsed.render_as_string(hide_password=True)
    try:
        engine = create_engine_for(url)
        with engine.connect() as connection:
            connection.execute(text("SELECT 1"))
        engine.dispose()
    except (DatabaseError, SQLAlchemyError) as error:
        advice = "check that the server runs and that name, user and password are right, or unset ELASTICQA_DB_URL"
        return fail("database", f"{shown} cannot be used ({one_line(error)})", advice)
    return ok("database", f"{shown} answers")


def check_sqlite(path: Path, mounts: str) -> Finding:
    """Return whether SQLite's locks work, tried on a temporary file in the same directory."""
    kind = file_system_of(path, mounts)
    if kind in SHARED_FILE_SYSTEMS:
        advice = "set ELASTICQA_DB_URL to a file on a local disk, or to PostgreSQL"
        return fail("database", f"{path} is on {kind}, where SQLite's locks are not safe", advice)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".doctor-") as folder:
            has_locks = _has_locks(Path(folder) / "trial.db")
    except (OSError, sqlite3.Error) as error:
        advice = "set ELASTICQA_DB_URL or ELASTICQA_HOME to a place that you can write"
        return fail("database", f"{path} cannot be written ({one_line(error)})", advice)
    if not has_locks:
        advice = "set ELASTICQA_DB_URL to a file on another disk, or to PostgreSQL"
        return fail("database", f"{path}: SQLite lets two processes write at once", advice)
    return ok("database", f"{path}, on {kind or 'an unknown file system'}: locks work")


def _has_locks(path: Path) -> bool:
    """Return whether a second writer is refused while a first one writes."""
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as first:
        first.execute("PRAGMA journal_mode = WAL")
        first.execute("BEGIN IMMEDIATE")
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as second:
            try:
                second.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                    return True
                raise
    return False
