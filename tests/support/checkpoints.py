"""Checkpoints of small engines, and damage to them."""

from pathlib import Path

from elasticqa.checkpoint.checkpointer import Checkpointer
from elasticqa.checkpoint.manifest import (
    Manifest,
    directory_name,
    write_manifest,
)
from elasticqa.checkpoint.retention import put_in_place
from elasticqa.config.train_config import Parallel
from elasticqa.distributed.topology import Topology
from tests.support.engines import CONFIG, engine, losses

ALONE = Topology.from_env({})


def save(topology: Topology, directory: Path, parallel: Parallel, step: int, keep: int = 2) -> tuple[Path, Manifest]:
    """Train ``step`` steps and save."""
    trained = engine(topology, parallel)
    losses(trained, range(step))
    return Checkpointer(directory, topology, keep).save(
        step,
        trained.model,
        trained.optimizer,
        {"updater": trained.updater.state_dict()},
        progress={"step": step, "last_losses": [0.5]},
        config=CONFIG.to_dict(),
    )


def save_some(directory: Path, *steps: int, keep: int = 9) -> Checkpointer:
    """Save an untrained model under each step and return the checkpointer."""
    untrained = engine(ALONE, "none")
    checkpointer = Checkpointer(directory, ALONE, keep)
    for step in steps:
        checkpointer.save(step, untrained.model, untrained.optimizer, {}, progress={}, config={})
    return checkpointer


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
