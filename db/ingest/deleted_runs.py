"""Runs whose files were read and have been deleted since: taken out of the index, where that is safe."""

from collections.abc import Collection, Mapping
from pathlib import Path

from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session

from db.engine import create_engine_for, database_errors, lock, migrate, write_locked
from db.ingest.batch import forget
from db.models import JournalFile
from db.storage.home import RUN_ID_PATTERN, database_url, home_of, runs_dir_of
from db.storage.run_files import REPORTED_DIR


class ForgetError(ValueError):
    """A run cannot be taken out of the database."""


def forget_run(environ: Mapping[str, str], run_id: str) -> int:
    """Take a run out of the database that the environment names; return how many lines were read of it.

    Raises:
        ForgetError: its directory is there, so that the next ingest would bring it back, or no such run is known.
        DatabaseError: the database cannot be used.
    """
    for root in (REPORTED_DIR, runs_dir_of(home_of(environ))):
        if RUN_ID_PATTERN.fullmatch(run_id) and (root / run_id).exists():
            raise ForgetError(f"run {run_id!r} has a directory in {root}: delete that first, it is the truth")
    engine = create_engine_for(database_url(environ))
    try:
        migrate(engine)
        with database_errors(engine), Session(write_locked(engine)) as session, session.begin():
            lock(session.connection(), "ingest")
            num_lines = session.scalar(select(func.sum(JournalFile.num_lines)).where(JournalFile.run_id == run_id))
            if num_lines is None:
                raise ForgetError(
                    f"run {run_id!r}, by its whole id, is not in the database: `elasticqa runs` lists the ids"
                )
            forget(session, run_id)
    finally:
        engine.dispose()
    return int(num_lines)


def forget_deleted_runs(engine: Engine, roots: Collection[Path], unseen: Collection[str]) -> set[str]:
    """Forget the runs that a deleted file belonged to; return their ids.

    What is left of such a run is new to the next ingest. A file that merely cannot be looked at is not deleted.

    Args:
        engine: of a database that holds the runs of these directories and of no others.
        roots: runs directories.
        unseen: paths of files, relative to one of them, that were read once and not found this time.
    """
    gone = {path for path in unseen if all(_is_gone(root / path) for root in roots)}
    if not gone:
        return set()
    with Session(write_locked(engine)) as session, session.begin():
        lock(session.connection(), "ingest")
        # Another process may have been first.
        run_ids = set(session.scalars(select(JournalFile.run_id).where(JournalFile.path.in_(gone))))
        for run_id in run_ids:
            forget(session, run_id)
    return run_ids


def _is_gone(path: Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False
