"""The file of a study: JSON lines that only grow, read back after any kill."""

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elasticqa.errors import ConfigError, shown
from elasticqa.run.annotations import append_lines
from elasticqa.run.home import new_run_id
from elasticqa.scaling.plan import Plan, Slot

SCHEMA_VERSION = 1
OPEN = "open"
FINISHED = "finished"
FAILED = "failed"
STOPPED = "stopped"
"""With the study itself: it is not a failure, and is tried again without being asked."""


@dataclass
class Try:
    """One run for a slot; of several the newest counts."""

    slot: Slot
    run_id: str
    handle: str | None = None
    """TorchX's; None if the study was killed while it submitted, or before."""
    status: str = OPEN
    reason: str = ""


@dataclass
class Study:
    """A study as its file tells it; what changes is written before it counts."""

    path: Path
    plan: Plan
    tries: dict[Slot, Try] = field(default_factory=dict)

    @property
    def study_id(self) -> str:
        """A ULID."""
        return self.path.stem

    @property
    def tag(self) -> str:
        """What the runs of the study are tagged with."""
        return f"study:{self.study_id}"

    @property
    def logs(self) -> Path:
        """Where the scheduler of this machine writes; Slurm's has a place of its own."""
        return self.path.with_suffix("") / "logs"

    def status_of(self, slot: Slot) -> str | None:
        """Return the status of a slot's newest try, or None where nothing has been tried."""
        return self.tries[slot].status if slot in self.tries else None

    def all_with(self, status: str) -> list[Try]:
        """Return the newest tries that have a status."""
        return [item for item in self.tries.values() if item.status == status]

    def is_complete(self) -> bool:
        """Whether every slot is filled."""
        return all(self.status_of(slot) == FINISHED for slot in self.plan.slots(self.study_id))

    def begin_try(self, slot: Slot) -> Try:
        """Return a new try, whose run id is on the disk before anything is submitted under it."""
        item = Try(slot, new_run_id())
        self._append(kind="try", cell=slot.cell.name, repeat=slot.repeat, run_id=item.run_id)
        self.tries[slot] = item
        return item

    def submitted(self, item: Try, handle: str) -> None:
        """Note the handle of a try."""
        self._append(kind="submitted", run_id=item.run_id, handle=handle)
        item.handle = handle

    def ended(self, item: Try, status: str, reason: str = "") -> None:
        """Note how a try ended."""
        self._append(kind="ended", run_id=item.run_id, status=status, reason=reason)
        item.status, item.reason = status, reason

    def _append(self, **line: Any) -> None:
        append_lines(self.path, [line])


def create(studies: Path, plan: Plan, command: Sequence[str]) -> Study:
    """Begin a study.

    Raises:
        ConfigError: the directory cannot be written.
    """
    path = studies / f"{new_run_id()}.jsonl"
    first = {"kind": "study", "schema_version": SCHEMA_VERSION, "study_id": path.stem, "command": list(command)}
    try:
        studies.mkdir(parents=True, exist_ok=True)
        append_lines(path, [{**first, "plan": plan.to_dict()}])
    except OSError as error:
        raise ConfigError(f"{studies} cannot be written ({error.strerror}): set ELASTICQA_HOME") from error
    return Study(path, plan)


def load(path: Path) -> Study:
    """Return a study from its file; a line that a kill has torn is nothing that happened.

    Raises:
        ConfigError: it is no such file.
    """
    lines = list(_lines(path))
    first = lines[0] if lines else {}
    if first.get("kind") != "study" or first.get("schema_version") != SCHEMA_VERSION:
        raise ConfigError(
            f"{path} does not begin as a study of this release: its first line is of kind "
            f"{shown(first.get('kind'))}, schema_version {shown(first.get('schema_version'))}"
        )
    try:
        study = Study(path, Plan.of(first["plan"]))
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{path} lacks {error} in its plan: start the study anew") from error
    slots = {(slot.cell.name, slot.repeat): slot for slot in study.plan.slots(study.study_id)}
    by_run: dict[str, Try] = {}
    for line in lines[1:]:
        if line.get("kind") == "try":
            item = Try(slots[line["cell"], line["repeat"]], line["run_id"])
            by_run[item.run_id] = study.tries[item.slot] = item
        elif line.get("kind") == "submitted":
            by_run[line["run_id"]].handle = line["handle"]
        elif line.get("kind") == "ended":
            by_run[line["run_id"]].status, by_run[line["run_id"]].reason = line["status"], line["reason"]
    return study


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for raw in path.read_bytes().split(b"\n"):
        try:
            line = json.loads(raw)
        except ValueError:
            continue
        if isinstance(line, dict):
            yield line


def find(study: str, studies: Path) -> Path:
    """Return the file of the study that ``study`` names: its id, or a beginning that no other shares.

    Raises:
        ConfigError: there is none, or more than one.
    """
    ids = sorted((path.stem for path in studies.glob("*.jsonl")), reverse=True)
    found = [study_id for study_id in ids if study and study_id.startswith(study)]
    if len(found) == 1:
        return studies / f"{found[0]}.jsonl"
    if found:
        raise ConfigError(f"study {study!r} is the beginning of {len(found)}: give more of {', '.join(found[:3])}")
    known = f"the newest are {', '.join(ids[:3])}" if ids else "there is none yet"
    raise ConfigError(f"study {shown(study)} is not in {studies}: {known}")


def newest_like(plan: Plan, studies: Path) -> Path | None:
    """Return the newest study that the same command began, or None."""
    for path in sorted(studies.glob("*.jsonl"), reverse=True):
        first = next(_lines(path), {})
        if first.get("schema_version") == SCHEMA_VERSION and first.get("plan") == plan.to_dict():
            return path
    return None


@contextmanager
def hold(study: Study) -> Iterator[None]:
    """Hold a study while the block runs; a process that dies lets go.

    Raises:
        ConfigError: another process works for it.
    """
    descriptor = os.open(study.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"study {study.study_id} is being worked for by another process: watch or stop that one"
            ) from None
        yield
    finally:
        os.close(descriptor)
