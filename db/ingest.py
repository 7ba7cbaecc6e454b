"""Journals into rows: incremental, idempotent, and safe when several processes do it at once."""

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from db.batch import apply, forget, unread
from db.engine import DatabaseError, create_engine_for, lock, migrate, usable, writing
from db.home import database_url, home_of, runs_dir_of
from db.journal_files import Delta, Place, Problem, read_delta
from db.models import JournalFile
from db.run_files import RunFile, run_files

REPORTED_DIR = Path(__file__).parent / "reported"
"""Runs that come with the product: figures that others have published."""
BATCH_BYTES = 8 * 2**20
BATCH_FILES = 200
"""One transaction takes about so much: enough to be fast, short enough for other writers to get in."""


@dataclass(frozen=True)
class IngestReport:
    """What one ingest did."""

    num_runs: int
    """Runs that grew."""
    num_lines: int
    """New lines, those with problems included."""
    problems: tuple[Problem, ...]


def ingest(engine: Engine, runs_dir: Path) -> IngestReport:
    """Bring the database up to date with the journals of a runs directory and with the reported runs.

    What has not grown costs one look at its size. The schema must be there (`db.engine.migrate`).
    """
    grown: set[str] = set()
    num_lines = 0
    problems: list[Problem] = []
    known = _known(engine)
    for root in (REPORTED_DIR, runs_dir):
        for batch in _batches(_grown_files(engine, root, known, problems), problems):
            with Session(writing(engine)) as session, session.begin():
                lock(session.connection(), "ingest")
                deltas = unread(session, batch)
                problems += apply(session, deltas)
            for delta in deltas:
                grown.add(delta.file.run_id)
                num_lines += delta.after.num_lines - delta.before.num_lines
                problems += delta.problems
    return IngestReport(len(grown), num_lines, tuple(problems))


def _known(engine: Engine) -> dict[str, Place]:
    columns = (JournalFile.path, JournalFile.num_lines, JournalFile.last_n, JournalFile.num_bytes)
    with engine.connect() as connection:
        return {row.path: Place(*row[1:]) for row in connection.execute(select(*columns))}


def _grown_files(
    engine: Engine, root: Path, known: Mapping[str, Place], problems: list[Problem]
) -> Iterator[tuple[RunFile, Place]]:
    for files in run_files(root):
        places = {file.path: known.get(file.path, Place()) for file in files}
        shrunk = [file for file in files if file.size < places[file.path].num_bytes]
        for file in shrunk[:1]:
            # Not appended to but replaced: what was read from it is not the truth any more.
            problems.append(Problem(file.path, None, "is shorter than before: the run is read anew"))
            _forget_shrunk(engine, file)
            places = dict.fromkeys(places, Place())
        for file in files:
            if file.size > places[file.path].num_bytes:
                yield file, places[file.path]


def _forget_shrunk(engine: Engine, file: RunFile) -> None:
    with Session(writing(engine)) as session, session.begin():
        lock(session.connection(), "ingest")
        place = session.get(JournalFile, file.path)
        # Another process may have done it since, and read the file anew as well.
        if place is not None and place.num_bytes > file.size:
            forget(session, file.run_id)


def _batches(work: Iterable[tuple[RunFile, Place]], problems: list[Problem]) -> Iterator[list[Delta]]:
    """Yield deltas with new lines, some files at a time or a part of a large one."""
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


def bring_up_to_date(environ: Mapping[str, str]) -> IngestReport:
    """Ingest into the database that the environment names, made and migrated where that is needed.

    Raises:
        DatabaseError: it cannot be used.
    """
    engine = create_engine_for(database_url(environ))
    try:
        migrate(engine)
        with usable(engine):
            return ingest(engine, runs_dir_of(home_of(environ)))
    finally:
        engine.dispose()


def main(argv: Sequence[str] | None = None) -> int:
    """Ingest the runs of a home directory; return 0, also when lines had to be left out, or 2 without a database."""
    parser = argparse.ArgumentParser(
        prog="elasticqa ingest", description="Bring the database up to date with the journals of all runs."
    )
    parser.add_argument("--home", type=Path, help="home directory (default: ELASTICQA_HOME)")
    parser.add_argument("--url", help="database (default: ELASTICQA_DB_URL, or a file in the home directory)")
    options = parser.parse_args(argv)
    environ = dict(os.environ)
    if options.home is not None:
        environ["ELASTICQA_HOME"] = str(options.home)
    if options.url is not None:
        environ["ELASTICQA_DB_URL"] = options.url
    try:
        report = bring_up_to_date(environ)
    except DatabaseError as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return 2
    for problem in report.problems:
        sys.stderr.write(f"{problem}\n")
    sys.stdout.write(f"{report.num_lines} new lines of {report.num_runs} runs; {len(report.problems)} problems\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
