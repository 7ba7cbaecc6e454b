"""New lines of a journal file, checked before they reach the database."""

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import inspect

from db.ingest.lines import LineError, parse, values_of
from db.journal_schema import LINES, SCHEMA_VERSION, AnnotationLine, AttemptLine, Count, Line
from db.models import Annotation, Base, Checkpoint, Evaluation, Event, Profile, Step, SystemSample
from db.storage.run_files import RunFile

CHUNK_BYTES = 8 * 2**20
"""Bytes read at once, and the limit of a line."""
MAX_PROBLEMS = 20
"""Problems listed one by one for each read of a file; more are counted."""
_TABLES: dict[str, type[Base]] = {
    "step": Step,
    "evaluation": Evaluation,
    "checkpoint": Checkpoint,
    "event": Event,
    "system": SystemSample,
    "profile": Profile,
}
_KEYS = {
    table: tuple(name for name in ("run_id", "attempt", "node_rank", "line") if name in inspect(table).columns)
    for table in (*_TABLES.values(), Annotation)
}
"""Columns that come from the line's file and number, not from its content."""
_FROM_ANY_NODE = frozenset({"attempt", "event", "system", "profile"})


@dataclass(frozen=True)
class _Number:
    n: Count


@dataclass(frozen=True)
class Problem:
    """A line or file that ingest skipped."""

    path: str
    """Relative to the runs directory."""
    line: int | None
    message: str

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{place} {self.message}"


@dataclass(frozen=True)
class FilePosition:
    """Position up to which a file has been read."""

    num_lines: int = 0
    last_n: int = 0
    num_bytes: int = 0


@dataclass
class Delta:
    """New lines of one file: rows by table, and the lines about the attempt itself."""

    file: RunFile
    before: FilePosition
    after: FilePosition
    is_at_end: bool = True
    rows: dict[type[Base], list[dict[str, Any]]] = field(default_factory=dict)
    about_attempt: list[tuple[Line, dict[str, Any]]] = field(default_factory=list)
    """Each line with its whole object."""
    last_t: float = 0.0
    problems: list[Problem] = field(default_factory=list)


def read_delta(file: RunFile, before: FilePosition) -> Delta:
    """Return the lines of a file after `before`, at most `CHUNK_BYTES` of them.

    A last line that is incomplete or not JSON is left for the next read. A damaged line before the last one, or one
    with a value that breaks the schema, is skipped and reported as a problem. A file with an invalid first line is
    skipped as a whole.
    """
    try:
        with (file.root / file.path).open("rb") as stream:
            stream.seek(before.num_bytes)
            data = stream.read(CHUNK_BYTES)
            is_at_end = not stream.read(1)
    except OSError as error:
        problem = Problem(file.path, None, f"cannot be read ({error.strerror})")
        return Delta(file, before, before, problems=[problem])
    refusal = _refusal(file, data) if file.attempt and not before.num_lines else None
    if refusal:
        return Delta(file, before, before, problems=[Problem(file.path, 1, f"{refusal}: file skipped")])
    return _Reader(file, before, is_at_end).read(data)


class _Reader:
    """Reads the lines of one chunk."""

    def __init__(self, file: RunFile, before: FilePosition, is_at_end: bool) -> None:
        self._delta = Delta(file, before, before, is_at_end)
        self._number = before.num_lines
        self._last_n = before.last_n
        self._has_end = False

    def read(self, data: bytes) -> Delta:
        delta = self._delta
        whole, newline, _ = data.rpartition(b"\n")
        lines = whole.split(b"\n") if newline else []
        if lines and delta.is_at_end and _is_torn(lines[-1]):
            lines.pop()
        for raw in lines:
            self._read_line(raw)
        if not lines and not delta.is_at_end:
            self._problem(f"and the next are longer than {CHUNK_BYTES} bytes: the rest of the file is not read")
        if len(delta.problems) > MAX_PROBLEMS:
            rest = len(delta.problems) - MAX_PROBLEMS
            delta.problems[MAX_PROBLEMS:] = [Problem(delta.file.path, None, f"has {rest} more such lines")]
        num_bytes = delta.before.num_bytes + sum(len(raw) + 1 for raw in lines)
        delta.after = FilePosition(self._number, self._last_n, num_bytes)
        return delta

    def _read_line(self, raw: bytes) -> None:
        # Count invalid lines too.
        self._number += 1
        self._last_n += 1
        try:
            line = parse(raw)
            number = values_of(line, _Number)["n"]
            if number != self._last_n:
                self._problem(f"has n={number} after n={self._last_n - 1}: lines are missing or repeated")
                self._last_n = number
            t = values_of(line, Line)["t"]
            if self._delta.file.attempt:
                self._take_fact(line)
            else:
                self._row(Annotation, values_of(line, AnnotationLine))
            self._delta.last_t = max(self._delta.last_t, t)
        except LineError as error:
            self._problem(f"{error}: skipped")

    def _take_fact(self, line: dict[str, Any]) -> None:
        kind = line.get("kind")
        node_rank = self._delta.file.node_rank
        if not isinstance(kind, str):
            raise LineError("has no kind, which is a text")
        if kind not in LINES:
            return
        if node_rank and kind not in _FROM_ANY_NODE:
            raise LineError(f"of kind {kind} is on node {node_rank}, but only node 0 writes those")
        if kind in _TABLES:
            if kind == "step" and self._has_end:
                raise LineError("is a step after the end of the attempt")
            self._row(_TABLES[kind], values_of(line, LINES[kind]))
        elif kind == "attempt" and self._number > 1:
            raise LineError("is a second attempt in one file")
        else:
            self._delta.about_attempt.append((LINES[kind](**values_of(line, LINES[kind])), line))
            self._has_end |= kind == "end"

    def _row(self, table: type[Base], row: dict[str, Any]) -> None:
        file = self._delta.file
        for name in _KEYS[table]:
            row[name] = self._number if name == "line" else getattr(file, name)
        self._delta.rows.setdefault(table, []).append(row)

    def _problem(self, message: str) -> None:
        self._delta.problems.append(Problem(self._delta.file.path, self._number, message))


def _is_torn(raw: bytes) -> bool:
    try:
        parse(raw)
    except LineError:
        return True
    return False


def _refusal(file: RunFile, data: bytes) -> str | None:
    """Return why the first line is invalid, or None if it is valid, or incomplete and the only one."""
    first, _, rest = data.partition(b"\n")
    try:
        line = parse(first)
    except LineError as error:
        return str(error) if rest else None
    version = line.get("schema_version")
    if line.get("kind") != "attempt" or type(version) is not int:
        return "is not an attempt line with a schema_version"
    if version > SCHEMA_VERSION:
        return f"has schema_version={version}, this release reads up to {SCHEMA_VERSION}: upgrade elasticqa"
    if line.get("run_id") != file.run_id:
        return f"is of run {line.get('run_id')!r:.80}: its directory must have that name"
    try:
        values_of(line, _Number)
        values_of(line, AttemptLine)
    except LineError as error:
        return str(error)
    return None
