"""Inserts new lines of some journals as rows, in the transaction of the caller."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, Table, delete, func, insert, select, update
from sqlalchemy.orm import Session

from db.engine import lock, write_locked
from db.ingest.attempts import add_evaluations, add_steps, apply_line, new_attempt
from db.ingest.journal_files import Delta, FilePosition, Problem
from db.ingest.run_summary import summarise_run
from db.ingest.step_summaries import summarise_steps
from db.models import Annotation, Attempt, Base, Evaluation, JournalFile, Run, Step

_Attempts = dict[tuple[str, int], Attempt]


@contextmanager
def writing(engine: Engine) -> Iterator[Session]:
    """Yield a session in a transaction; one process at a time can be in it."""
    with Session(write_locked(engine)) as session, session.begin():
        lock(session.connection(), "ingest")
        yield session


def file_positions(connection: Connection, paths: Collection[str] | None = None) -> dict[str, FilePosition]:
    """Return the position in each file, or in those of `paths`."""
    columns = (JournalFile.path, JournalFile.num_lines, JournalFile.last_n, JournalFile.num_bytes)
    statement = select(*columns) if paths is None else select(*columns).where(JournalFile.path.in_(paths))
    return {row.path: FilePosition(*row[1:]) for row in connection.execute(statement)}


def claim_deltas(session: Session, deltas: Iterable[Delta]) -> list[Delta]:
    """Return the deltas that no other process has inserted since they were read, and mark them as read."""
    deltas = list(deltas)
    known = file_positions(session.connection(), {delta.file.path for delta in deltas})
    reached = dict(known)
    claimed = []
    for delta in deltas:
        if reached.get(delta.file.path, FilePosition()) == delta.before:
            reached[delta.file.path] = delta.after
            claimed.append(delta)
    run_ids = {delta.file.path: delta.file.run_id for delta in claimed}
    rows = [{"path": path, "run_id": run_id, **vars(reached[path])} for path, run_id in run_ids.items()]
    _insert(session, JournalFile, [row for row in rows if row["path"] not in known])
    moved = [row for row in rows if row["path"] in known]
    if moved:
        session.execute(update(JournalFile), moved)
    return claimed


def insert_deltas(session: Session, deltas: Sequence[Delta]) -> list[Problem]:
    """Insert the rows of `deltas` and update their attempts and runs; return what was skipped."""
    run_ids = sorted({delta.file.run_id for delta in deltas})
    attempts: _Attempts = {
        (attempt.run_id, attempt.attempt): attempt
        for attempt in session.scalars(select(Attempt).where(Attempt.run_id.in_(run_ids)))
    }
    known = set(attempts)
    rows: dict[type[Base], list[dict[str, Any]]] = {}
    problems: list[Problem] = []
    for delta in deltas:
        if delta.file.attempt:
            problems += _apply_to_attempt(attempts, delta)
        for table, new in delta.rows.items():
            rows.setdefault(table, []).extend(new)
    for table, new in rows.items():
        _insert(session, table, new)
    for key in dict.fromkeys((row["run_id"], row["attempt"]) for row in rows.get(Step, ())):
        summarise_steps(session, attempts[key])
    _summarise(session, run_ids, attempts)
    # Attempts refer to runs, so runs are inserted first.
    session.flush()
    session.add_all(attempt for key, attempt in attempts.items() if key not in known)
    session.flush()
    return problems


def delete_run_rows(session: Session, run_id: str) -> None:
    """Delete every row of a run, including the positions in its files."""
    for table in reversed(Base.metadata.sorted_tables):
        if "run_id" in table.c:
            session.execute(delete(table).where(table.c.run_id == run_id))


def _apply_to_attempt(attempts: _Attempts, delta: Delta) -> list[Problem]:
    file = delta.file
    attempt = attempts.setdefault((file.run_id, file.attempt), new_attempt(file.run_id, file.attempt))
    problems = []
    steps = delta.rows.get(Step)
    if steps:
        new = _in_order(attempt, steps)
        if len(new) < len(steps):
            count = len(steps) - len(new)
            problems.append(Problem(file.path, None, f"has {count} steps that repeat or follow the end: skipped"))
        delta.rows[Step] = new
        add_steps(attempt, new)
    add_evaluations(attempt, delta.rows.get(Evaluation, ()))
    for line, raw in delta.about_attempt:
        apply_line(attempt, file.node_rank, line, raw)
    attempt.last_seen_at = max(attempt.last_seen_at, delta.last_t)
    return problems


def _in_order(attempt: Attempt, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with increasing steps; none after the end of the attempt."""
    if attempt.ended_at is not None:
        return []
    last = -1 if attempt.end_step is None else attempt.end_step
    new = []
    for row in rows:
        if row["step"] > last:
            last = row["step"]
            new.append(row)
    return new


def _summarise(session: Session, run_ids: Sequence[str], attempts: _Attempts) -> None:
    annotations: dict[str, list[Annotation]] = {}
    for annotation in session.scalars(
        select(Annotation).where(Annotation.run_id.in_(run_ids)).order_by(Annotation.run_id, Annotation.line)
    ):
        annotations.setdefault(annotation.run_id, []).append(annotation)
    of_run: dict[str, list[Attempt]] = {}
    for _, attempt in sorted(attempts.items()):
        of_run.setdefault(attempt.run_id, []).append(attempt)
    of_runs = select(JournalFile.run_id, func.sum(JournalFile.num_lines)).where(JournalFile.run_id.in_(run_ids))
    num_lines = {row[0]: int(row[1]) for row in session.execute(of_runs.group_by(JournalFile.run_id))}
    # Load all runs with one query and keep references: `merge` would query dropped objects one by one.
    held = {run.run_id: run for run in session.scalars(select(Run).where(Run.run_id.in_(run_ids)))}
    for run_id, its_attempts in of_run.items():
        held[run_id] = session.merge(summarise_run(its_attempts, annotations.get(run_id, []), num_lines[run_id]))


def _insert(session: Session, model: type[Base], rows: list[dict[str, Any]]) -> None:
    if rows:
        table = model.__table__
        assert isinstance(table, Table)
        session.connection().execute(insert(table), rows)
