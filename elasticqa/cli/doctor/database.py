"""The database: a SQLite file that can be locked, or a server that answers."""

import sqlite3
import tempfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from sqlalchemy import make_url, text
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from db.engine import DatabaseError, create_engine_for
from db.storage.home import MOUNTS, SHARED_FILE_SYSTEMS, database_url, file_system_of
from elasticqa.cli.doctor.finding import Finding, fail, first_line, ok


def check(environ: Mapping[str, str]) -> list[Finding]:
    """Check the database that the pages and reports of this machine read."""
    mounts = MOUNTS.read_text() if MOUNTS.exists() else ""
    return [check_database(database_url(environ, mounts), mounts)]


def check_database(url: str, mounts: str) -> Finding:
    """Return whether the database can be used; its schema is left as it is.

    Args:
        url: of the database.
        mounts: text of `/proc/self/mountinfo`.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        # The URL itself stays out of the finding: what cannot be parsed may hold a password.
        return fail("database", "ELASTICQA_DB_URL is no URL", "use sqlite:///FILE or postgresql://USER@HOST/NAME")
    if parsed.get_backend_name() == "sqlite" and parsed.database not in (None, "", ":memory:"):
        return check_sqlite(Path(str(parsed.database)), mounts)
    shown = parsed.render_as_string(hide_password=True)
    try:
        engine = create_engine_for(url)
        with engine.connect() as connection:
            connection.execute(text("SELECT 1"))
        engine.dispose()
    except (DatabaseError, SQLAlchemyError) as error:
        advice = "see that the server runs and the name, user and password are right, or unset ELASTICQA_DB_URL"
        return fail("database", f"{shown} cannot be used ({first_line(error)})", advice)
    return ok("database", f"{shown} answers")


def check_sqlite(path: Path, mounts: str) -> Finding:
    """Return whether SQLite's locks work where the file lies, tried on a file beside it."""
    kind = file_system_of(path, mounts)
    if kind in SHARED_FILE_SYSTEMS:
        advice = "set ELASTICQA_DB_URL to a file on a local disk, or to PostgreSQL"
        return fail("database", f"{path} is on {kind}, where SQLite's locks are not safe", advice)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".doctor-") as folder:
            excludes = _excludes(Path(folder) / "trial.db")
    except (OSError, sqlite3.Error) as error:
        advice = "set ELASTICQA_DB_URL or ELASTICQA_HOME to a place that you can write"
        return fail("database", f"{path} cannot be written ({first_line(error)})", advice)
    if not excludes:
        advice = "set ELASTICQA_DB_URL to a file on another disk, or to PostgreSQL"
        return fail("database", f"{path}: two writers are let in at once", advice)
    return ok("database", f"{path}, on {kind or 'an unknown file system'}, locks")


def _excludes(path: Path) -> bool:
    """Return whether a second writer is kept out while a first one writes."""
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
