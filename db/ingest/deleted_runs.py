"""Removes runs from the database after their files were deleted."""

from collections.abc import Collection, Mapping
from pathlib import Path

from sqlalchemy import Engine, func, select

from db.engine import open_database
from db.ingest.batch import delete_run_rows, writing
from db.models import JournalFile
from db.storage.home import RUN_ID_PATTERN, database_url, home_of, runs_dir_of
from db.storage.run_files import REPORTED_DIR


class ForgetError(ValueError):
    """A run that cannot be removed from the database."""


def forget_run(environ: Mapping[str, str], run_id: str) -> int:
    """Remove a run from the database of an environment; return how many lines had been read of it.

    Raises:
        ForgetError: its directory exists, so the next ingest would add it again; or the run is unknown.
        DatabaseError: the database cannot be used.
    """
    for root in (REPORTED_DIR, runs_dir_of(home_of(environ))):
        if RUN_ID_PATTERN.fullmatch(run_id) and (root / run_id).exists():
            raise ForgetError(
                f"run {run_id!r} has a directory in {root}: delete that first; the database only indexes it"
            )
    with open_database(database_url(environ)) as engine, writing(engine) as session:
        num_lines = session.scalar(select(func.sum(JournalFile.num_lines)).where(JournalFile.run_id == run_id))
        if num_lines is None:
            raise ForgetError(
                f"run {run_id!r} is not in the database; give the whole id: `elasticqa runs` lists the ids"
            )
        delete_run_rows(session, run_id)
    return int(num_lines)


def forget_deleted_runs(engine: Engine, roots: Collection[Path], unseen: Collection[str]) -> set[str]:
    """Remove the runs that have a deleted file; return their ids.

    The next ingest reads the remaining files of such a run again. A file that cannot be accessed does not count as
    deleted. The database must contain runs of the directories `roots` only; `unseen` are the paths in them that were
    read before and not found this time.
    """
    deleted = {path for path in unseen if all(_is_deleted(root / path) for root in roots)}
    if not deleted:
        return set()
    with writing(engine) as session:
        # Another process may have removed them first.
        run_ids = set(session.scalars(select(JournalFile.run_id).where(JournalFile.path.in_(deleted))))
        for run_id in run_ids:
            delete_run_rows(session, run_id)
    return run_ids


def _is_deleted(path: Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False
