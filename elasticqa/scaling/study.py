"""The file of a study: append-only JSON lines, from which the study continues after a crash; and outcomes of runs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from db.storage.file_lock import try_lock
from db.storage.run_files import main_journals
from elasticqa.errors import ConfigError, shown
from elasticqa.run.annotations import append_lines
from elasticqa.run.home import new_run_id
from elasticqa.run.journal_reader import first_attempt_line, json_object, newest_end_line
from elasticqa.scaling.matrix import Slot, StudyMatrix

SCHEMA_VERSION = 1
OPEN = "open"
FINISHED = "finished"
FAILED = "failed"
STOPPED = "stopped"
"""The run was stopped together with the study. This is no failure: the slot is filled again without ``--retry``."""


@dataclass
class StudyRun:
    """A run that is to fill a slot; the newest of a slot counts."""

    slot: Slot
    run_id: str
    handle: str | None = None
    """TorchX's handle of the job; None if the study was killed before it noted one."""
    status: str = OPEN
    reason: str = ""


@dataclass
class Study:
    """A study in memory; every change is written to its file first."""

    path: Path
    matrix: StudyMatrix
    runs: dict[Slot, StudyRun] = field(default_factory=dict)

    @property
    def study_id(self) -> str:
        """A ULID."""
        return self.path.stem

    @property
    def tag(self) -> str:
        """Tag of the study's runs."""
        return f"study:{self.study_id}"

    @property
    def logs(self) -> Path:
        """Directory for the logs of jobs on this machine; Slurm's logs have their own directory."""
        return self.path.with_suffix("") / "logs"

    def slots(self) -> list[Slot]:
        """Return all slots in the order of submission."""
        return self.matrix.slots(self.study_id)

    def status_of(self, slot: Slot) -> str | None:
        """Return the status of a slot's newest run, or None if it has none."""
        return self.runs[slot].status if slot in self.runs else None

    def runs_with(self, status: str) -> list[StudyRun]:
        """Return the newest runs that have a status."""
        return [run for run in self.runs.values() if run.status == status]

    def is_complete(self) -> bool:
        """Return whether every slot has a finished run."""
        return all(self.status_of(slot) == FINISHED for slot in self.slots())

    def add_run(self, slot: Slot) -> StudyRun:
        """Return a new run for a slot; its id is on disk before its job is submitted."""
        run = StudyRun(slot, new_run_id())
        self._append(kind="try", cell=slot.cell.name, repeat=slot.repeat, run_id=run.run_id)
        self.runs[slot] = run
        return run

    def note_submitted(self, run: StudyRun, handle: str) -> None:
        """Note the handle of a run's job."""
        self._append(kind="submitted", run_id=run.run_id, handle=handle)
        run.handle = handle

    def note_ended(self, run: StudyRun, status: str, reason: str = "") -> None:
        """Note how a run ended."""
        self._append(kind="ended", run_id=run.run_id, status=status, reason=reason)
        run.status, run.reason = status, reason

    def _append(self, **line: Any) -> None:
        append_lines(self.path, [line])


def create(studies: Path, matrix: StudyMatrix, command: Sequence[str]) -> Study:
    """Return a new study, whose file is in the directory ``studies``.

    Raises:
        ConfigError: the directory cannot be written.
    """
    path = studies / f"{new_run_id()}.jsonl"
    first = {"kind": "study", "schema_version": SCHEMA_VERSION, "study_id": path.stem, "command": list(command)}
    try:
        append_lines(path, [{**first, "plan": matrix.to_dict()}])
    except OSError as error:
        raise ConfigError(f"{studies} cannot be written ({error.strerror}): set ELASTICQA_HOME") from error
    return Study(path, matrix)


def load(path: Path) -> Study:
    """Return the study in a file; a line cut off by a crash is ignored.

    Raises:
        ConfigError: it is not the file of a study.
    """
    lines = list(_lines(path))
    first = lines[0] if lines else {}
    if first.get("kind") != "study" or first.get("schema_version") != SCHEMA_VERSION:
        raise ConfigError(
            f"{path} is not a study file of this release: its first line has kind "
            f"{shown(first.get('kind'))}, schema_version {shown(first.get('schema_version'))}"
        )
    try:
        study = Study(path, StudyMatrix.of(first["plan"]))
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{path} has no {error} in its first line: start a new study") from error
    slots = {(slot.cell.name, slot.repeat): slot for slot in study.slots()}
    by_id: dict[str, StudyRun] = {}
    for line in lines[1:]:
        if line.get("kind") == "try":
            run = StudyRun(slots[line["cell"], line["repeat"]], line["run_id"])
            by_id[run.run_id] = study.runs[run.slot] = run
        elif line.get("kind") == "submitted":
            by_id[line["run_id"]].handle = line["handle"]
        elif line.get("kind") == "ended":
            by_id[line["run_id"]].status, by_id[line["run_id"]].reason = line["status"], line["reason"]
    return study


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    lines = map(json_object, path.read_bytes().split(b"\n"))
    yield from (line for line in lines if line is not None)


def find(study: str, studies: Path) -> Path:
    """Return the file of a study, given its id or a unique prefix of it.

    Raises:
        ConfigError: no study matches, or more than one.
    """
    ids = sorted((path.stem for path in studies.glob("*.jsonl")), reverse=True)
    found = [study_id for study_id in ids if study and study_id.startswith(study)]
    if len(found) == 1:
        return studies / f"{found[0]}.jsonl"
    if found:
        raise ConfigError(f"study {study!r} matches {len(found)} studies: give more of {', '.join(found[:3])}")
    known = f"the newest are {', '.join(ids[:3])}" if ids else "there are no studies yet"
    raise ConfigError(f"study {shown(study)} is not in {studies}: {known}")


def newest_like(matrix: StudyMatrix, studies: Path) -> Path | None:
    """Return the file of the newest study with the same matrix, or None."""
    for path in sorted(studies.glob("*.jsonl"), reverse=True):
        first = next(_lines(path), {})
        if first.get("schema_version") == SCHEMA_VERSION and first.get("plan") == matrix.to_dict():
            return path
    return None


@contextmanager
def hold(study: Study) -> Iterator[None]:
    """Lock a study while the block runs; the lock ends with the process.

    Raises:
        ConfigError: another process holds it.
    """
    with try_lock(study.path.with_suffix(".lock")) as is_mine:
        if not is_mine:
            raise ConfigError(f"another process is working on study {study.study_id}: wait for it or stop it")
        yield


@dataclass(frozen=True)
class Outcome:
    """How a run ended, from its journal; the scheduler only knows whether its processes are running."""

    status: str | None
    """`finished`, `failed` or `preempted`; None without an `end` line."""
    reason: str
    wall_clock_s: float | None
    """Seconds from the start of the first attempt to the end of the last; None unless finished."""
    num_attempts: int
    """0 for a run that never started."""


def outcome_of(directory: Path) -> Outcome:
    """Return the outcome of the run in a run directory."""
    num_attempts = len(main_journals(directory))
    end, first = newest_end_line(directory), first_attempt_line(directory)
    if end is None or first is None:
        return Outcome(None, "", None, num_attempts)
    status, reason = str(end.get("status")), str(end.get("reason"))
    wall_clock_s = None
    if status == "finished":
        started_at = first.get("started_at", first["t"])
        wall_clock_s = end["wall_clock_s"] if num_attempts == 1 else end["t"] - started_at
    return Outcome(status, reason, wall_clock_s, num_attempts)
