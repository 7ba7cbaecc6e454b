"""Updates the database from the journals, also after runs were deleted; several processes may do so at once."""

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Engine, func, select

from db.command_line import Parser
from db.engine import DatabaseError, open_database
from db.ingest.batch import claim_deltas, delete_run_rows, file_positions, insert_deltas, writing
from db.ingest.journal_files import Delta, FilePosition, Problem, read_delta
from db.models import JournalFile
from db.storage.home import RUN_ID_PATTERN, database_url, home_of, is_home_database, runs_dir_of
from db.storage.run_files import REPORTED_DIR, RunFile, run_files

BATCH_BYTES = 8 * 2**20
BATCH_FILES = 200
"""Approximate limits of one transaction: large enough to be fast, short enough for other writers."""


@dataclass
class IngestReport:
    """Result of one ingest."""

    run_ids: set[str] = field(default_factory=set)
    """Runs with new lines."""
    num_lines: int = 0
    """New lines, including those with problems."""
    num_deleted: int = 0
    """Runs that were removed because a file was deleted; their remaining files are read again."""
    problems: list[Problem] = field(default_factory=list)


def ingest(engine: Engine, runs_dir: Path, *, remove_deleted: bool = False) -> IngestReport:
    """Add the new lines of a runs directory, and of the reported runs, to a migrated database.

    Files that have not grown are not opened. `remove_deleted` removes runs with deleted files; do not use it if
    the database has runs of other directories.
    """
    report = IngestReport()
    roots = (REPORTED_DIR, runs_dir)
    unseen = _read(engine, roots, report)
    # Do not delete runs if the runs directory is missing: it may be unmounted.
    if remove_deleted and runs_dir.is_dir():
        report.num_deleted = len(forget_deleted_runs(engine, roots, unseen))
    if report.num_deleted:
        _read(engine, roots, report)
    return report


def _read(engine: Engine, roots: Iterable[Path], report: IngestReport) -> set[str]:
    """Add every new line; return the known files that no longer exist in these directories."""
    with engine.connect() as connection:
        known = file_positions(connection)
    seen: set[str] = set()
    for root in roots:
        for batch in _batches(_grown_files(engine, root, known, seen, report.problems), report.problems):
            with writing(engine) as session:
                deltas = claim_deltas(session, batch)
                report.problems += insert_deltas(session, deltas)
            for delta in deltas:
                report.run_ids.add(delta.file.run_id)
                report.num_lines += delta.after.num_lines - delta.before.num_lines
                report.problems += delta.problems
    return known.keys() - seen


def _grown_files(
    engine: Engine, root: Path, known: Mapping[str, FilePosition], seen: set[str], problems: list[Problem]
) -> Iterator[tuple[RunFile, FilePosition]]:
    for files in run_files(root):
        seen.update(file.path for file in files)
        positions = {file.path: known.get(file.path, FilePosition()) for file in files}
        shrunk = [file for file in files if file.size < positions[file.path].num_bytes]
        for file in shrunk[:1]:
            # The file was replaced, so its rows are outdated.
            problems.append(Problem(file.path, None, "is shorter than before: the run is read again"))
            _forget_shrunk(engine, file)
            positions = dict.fromkeys(positions, FilePosition())
        for file in files:
            if file.size > positions[file.path].num_bytes:
                yield file, positions[file.path]


def _forget_shrunk(engine: Engine, file: RunFile) -> None:
    with writing(engine) as session:
        position = session.get(JournalFile, file.path)
        # Another process may have done this already, and read the file again.
        if position is not None and position.num_bytes > file.size:
            delete_run_rows(session, file.run_id)


def _batches(work: Iterable[tuple[RunFile, FilePosition]], problems: list[Problem]) -> Iterator[list[Delta]]:
    """Yield batches of deltas with new lines: several files, or part of a large one."""
    batch: list[Delta] = []
    num_bytes = 0
    for file, start in work:
        place, is_at_end = start, False
        while not is_at_end:
            delta = read_delta(file, place)
            if delta.after == place:
                problems += delta.problems
                break
            place, is_at_end = delta.after, delta.is_at_end
            batch.append(delta)
            num_bytes += delta.after.num_bytes - delta.before.num_bytes
            if num_bytes >= BATCH_BYTES or len(batch) >= BATCH_FILES:
                yield batch
                batch, num_bytes = [], 0
    if batch:
        yield batch


def update_database(environ: Mapping[str, str]) -> IngestReport:
    """Create or migrate the database of an environment, and add new lines to it; raises as `open_database` does."""
    with open_database(database_url(environ)) as engine:
        return ingest(engine, runs_dir_of(home_of(environ)), remove_deleted=is_home_database(environ))


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


def main(argv: Sequence[str] | None = None) -> int:
    """Ingest the runs of a home directory; return 0, even with skipped lines, or 2 if the database is unusable."""
    parser = Parser("elasticqa ingest", "Update the database from the journals of all runs.")
    parser.add_argument("--home", type=Path, help="home directory (default: ELASTICQA_HOME)")
    parser.add_argument("--url", help="database (default: ELASTICQA_DB_URL, or a file in the home directory)")
    parser.add_argument(
        "--forget",
        action="append",
        default=[],
        metavar="RUN",
        help="remove a run from the database after its directory was deleted; takes a whole run id, repeatable",
    )
    options = parser.parse_args(argv)
    environ = dict(os.environ)
    if options.home is not None:
        environ["ELASTICQA_HOME"] = str(options.home)
    if options.url is not None:
        environ["ELASTICQA_DB_URL"] = options.url
    try:
        for run_id in options.forget:
            sys.stdout.write(f"{run_id}: {forget_run(environ, run_id)} lines removed\n")
        report = update_database(environ)
    except (DatabaseError, ForgetError) as error:
        return parser.refuse(error)
    for problem in report.problems:
        sys.stderr.write(f"{problem}\n")
    deleted = f"; {report.num_deleted} runs deleted" if report.num_deleted else ""
    sys.stdout.write(
        f"{report.num_lines} new lines of {len(report.run_ids)} runs; {len(report.problems)} problems{deleted}\n"
    )
    return 0
