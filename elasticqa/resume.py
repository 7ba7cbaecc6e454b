"""Which run a start belongs to: a new one, or an unfinished one that goes on."""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from db.home import RUN_ID_PATTERN
from elasticqa.config import HARMLESS_FIELDS, TrainConfig
from elasticqa.errors import ConfigError, shown
from elasticqa.home import new_run_id

RUN_ID_VARIABLE = "ELASTICQA_RUN_ID"
_LOCK = "active.lock"
_LONGEST_LINE = 1 << 18
"""Bytes; an `attempt` line with its command and an `end` line are some thousands."""


@dataclass(frozen=True)
class RunChoice:
    """The directory of the run that this start works for, and whether it has been worked for before."""

    directory: Path
    is_new: bool

    @property
    def run_id(self) -> str:
        """The run's id, the name of its directory."""
        return self.directory.name


def choose_run(config: TrainConfig, runs_dir: Path, environ: Mapping[str, str] = os.environ) -> RunChoice:
    """Return the run to work for.

    In this order: the directory that ``resume`` names; the run of ``ELASTICQA_RUN_ID`` if it has begun (a requeue or a
    restart); with ``auto``, the newest unfinished run of the same config that nobody works for; else a new run.

    Raises:
        ConfigError: the named run does not exist, is finished, or learns something else; or the variable is no run id.
    """
    run_id = environ.get(RUN_ID_VARIABLE) or new_run_id()
    if not RUN_ID_PATTERN.fullmatch(run_id):
        raise ConfigError(
            f"{RUN_ID_VARIABLE}={shown(run_id)} is not a plain name, so it could lead out of {runs_dir}: use 1 to 64 "
            "letters, digits, '.', '_' or '-', starting with a letter or digit, or unset it"
        )
    proposed = runs_dir / run_id
    if config.resume not in ("auto", "none"):
        directory = _named_run(config.resume, runs_dir)
        _refuse_differences(config, directory)
        if is_finished(directory):
            raise ConfigError(
                f"run {directory.name} is finished: there is no step left to train; --resume none begins a new run"
            )
        return RunChoice(directory, is_new=False)
    if first_line(proposed) is not None:
        _refuse_differences(config, proposed)
        return RunChoice(proposed, is_new=False)
    if config.resume == "auto":
        for directory in sorted(runs_dir.glob("*"), reverse=True):
            if _is_unfinished(config, directory):
                return RunChoice(directory, is_new=False)
    return RunChoice(proposed, is_new=True)


def _named_run(resume: str, runs_dir: Path) -> Path:
    for directory in (Path(resume), runs_dir / resume):
        if first_line(directory) is not None:
            return directory.resolve()
    raise ConfigError(
        f"resume={resume!r} is not a run: give auto, none, a run id, or a run directory (with journal/ in it)"
    )


def _refuse_differences(config: TrainConfig, directory: Path) -> None:
    differences = _differences(config, first_line(directory))
    if differences:
        listed = "; ".join(f"{name} was {old!r}, is {new!r}" for name, (old, new) in differences.items())
        raise ConfigError(
            f"run {directory.name} cannot go on with another config: {listed}; give it the old values, or --resume "
            f"none for a new run (only {', '.join(sorted(HARMLESS_FIELDS))} may change)"
        )


def _is_unfinished(config: TrainConfig, directory: Path) -> bool:
    line = first_line(directory)
    if line is None or line.get("provenance") != "measured" or _differences(config, line):
        return False
    if is_finished(directory):
        return False
    try:
        with hold(directory) as is_mine:
            return is_mine
    except OSError:  # somebody else's directory, which cannot be written
        return False


def _differences(config: TrainConfig, line: dict[str, Any] | None) -> dict[str, tuple[Any, Any]]:
    recorded = (line or {}).get("config")
    return fixed_by(line, config).differences(recorded if isinstance(recorded, dict) else {})


def fixed_by(line: dict[str, Any] | None, config: TrainConfig) -> TrainConfig:
    """Return the config with the global batch of a run, given the `attempt` line of its first attempt."""
    world_size = (line or {}).get("world_size")
    return config.fixed(world_size if isinstance(world_size, int) and world_size > 0 else 1)


def _journals(directory: Path) -> list[Path]:
    return sorted((directory / "journal").glob("attempt-*-node-00000.jsonl"))


def first_line(directory: Path) -> dict[str, Any] | None:
    """Return the `attempt` line of a run's first attempt, or None if nothing has been recorded there."""
    for path in _journals(directory):
        try:
            with path.open("rb") as file:
                line = _object(file.readline(_LONGEST_LINE))
        except OSError:
            continue
        if line is not None:
            return line
    return None


def last_end(directory: Path) -> dict[str, Any] | None:
    """Return the `end` line of a run's newest attempt, or None if that attempt has none."""
    journals = _journals(directory)
    if not journals:
        return None
    try:
        with journals[-1].open("rb") as file:
            file.seek(max(0, journals[-1].stat().st_size - _LONGEST_LINE))
            tail = file.read().split(b"\n")
    except OSError:
        return None
    for raw in reversed(tail):
        line = _object(raw)
        if line is not None and line.get("kind") == "end":
            return line
    return None


def _object(raw: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None


def is_finished(directory: Path) -> bool:
    """Whether the newest attempt of a run trained to its last step."""
    end = last_end(directory)
    return end is not None and end.get("status") == "finished"


@contextmanager
def hold(directory: Path) -> Iterator[bool]:
    """Hold a run while the block runs, and tell whether nobody else did: a process that dies lets go.

    Where the file system has no locks the answer is yes.
    """
    descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError:
            pass
        yield True
    finally:
        os.close(descriptor)
