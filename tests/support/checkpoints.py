"""Checkpoints of small engines, and damage to them."""

from pathlib import Path
from typing import Any

from elasticqa.checkpoint.checkpointer import PROGRESS, Checkpointer
from elasticqa.checkpoint.manifest import Manifest, directory_name, write_manifest
from elasticqa.checkpoint.retention import put_in_place
from elasticqa.config.train_config import Parallel
from elasticqa.distributed.topology import Topology
from elasticqa.training.app_state import app_state_of
from tests.support.train_steps import CONFIG, losses, new_train_step

ALONE = Topology.from_env({})


class LineList:
    """A record that keeps its lines in memory."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def flush(self) -> None:
        pass

    def write(self, kind: str, fields: dict[str, Any]) -> None:
        self.lines.append((kind, fields))


class SomeProgress:
    """Progress of a run whose only part is its step."""

    def __init__(self, step: int) -> None:
        self._step = step

    def state_dict(self) -> dict[str, Any]:
        return {"step": self._step, "last_losses": [0.5]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._step = state["step"]


def save(topology: Topology, directory: Path, parallel: Parallel, step: int, keep: int = 2) -> tuple[Path, Manifest]:
    """Train ``step`` steps and save."""
    trained = new_train_step(topology, parallel)
    losses(trained, range(step))
    app_state = {**app_state_of(trained), PROGRESS: SomeProgress(step)}
    checkpointer = Checkpointer(directory, topology, app_state, keep=keep, config=CONFIG.to_dict())
    checkpointer.start(step, "final")
    checkpointer.finish()
    return checkpointer.named(directory / directory_name(step))


def save_some(directory: Path, *steps: int, keep: int = 9) -> Checkpointer:
    """Save an untrained model under each step and return the checkpointer."""
    checkpointer = Checkpointer(directory, ALONE, app_state_of(new_train_step(ALONE, "none")), keep=keep)
    for step in steps:
        checkpointer.start(step, "final")
        checkpointer.finish()
    return checkpointer


def newest_step(checkpointer: Checkpointer) -> int | None:
    """Return the step of the newest whole checkpoint, or None."""
    found = checkpointer.newest_whole()
    return None if found is None else found[1].step


def flip(path: Path) -> None:
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def commit(directory: Path, step: int) -> Path:
    """Write a small whole checkpoint as the ranks do."""
    temporary, final = directory / ".partial", directory / directory_name(step)
    temporary.mkdir(parents=True)
    (temporary / "__0_0.distcp").write_bytes(b"x" * 100)
    write_manifest(temporary, Manifest(step, {}, {}))
    put_in_place(temporary, final)
    return final


def tear(path: Path) -> None:
    (path / "__0_0.distcp").write_bytes(b"x" * 50)
