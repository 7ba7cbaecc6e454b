"""Checkpoints that are whole or absent, and load at any world size under any strategy.

A checkpoint is written under a temporary name by all ranks (torch.distributed.checkpoint, sharded); after a barrier
rank 0 writes the manifest with the size and SHA-256 of every file and renames the directory. What has no manifest,
or does not match it, is not a checkpoint.
"""

import hashlib
import json
import logging
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.optim import Optimizer

from elasticqa.errors import CheckpointError
from elasticqa.topology import Topology

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"
FORMAT_VERSION = 1
_CHUNK_BYTES = 1 << 22


@dataclass(frozen=True)
class Manifest:
    """What a whole checkpoint says of itself."""

    step: int
    progress: dict[str, Any]
    config: dict[str, Any]
    files: dict[str, tuple[int, str]]
    """Name -> (bytes, SHA-256 in hex)."""

    @property
    def num_bytes(self) -> int:
        """Bytes of all files."""
        return sum(size for size, _ in self.files.values())


def directory_name(step: int) -> str:
    """Return the name of the checkpoint after ``step`` optimizer steps."""
    return f"step-{step:08d}"


class Checkpointer:
    """Saves, finds, restores and prunes the checkpoints of one run."""

    def __init__(self, directory: Path, topology: Topology, keep: int) -> None:
        self._directory = directory
        self._topology = topology
        self._keep = keep

    def save(
        self,
        step: int,
        model: nn.Module,
        optimizer: Optimizer,
        extra: Mapping[str, Any],
        *,
        progress: dict[str, Any],
        config: dict[str, Any],
    ) -> tuple[Path, Manifest]:
        """Write and commit the checkpoint of a step; every rank must call this.

        Args:
            step: optimizer steps done.
            model: as wrapped.
            optimizer: of that model.
            extra: further tensors, equal on every rank.
            progress: scalars of the trainer, for the manifest.
            config: of the run, for the manifest.

        Raises:
            CheckpointError: some rank could not write its part; nothing is left behind.
        """
        final = self._directory / directory_name(step)
        temporary = self._directory / f".{final.name}.partial"
        if self._topology.is_main:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
        self._topology.barrier()
        model_state, optimizer_state = get_state_dict(model, optimizer)
        state = {"model": model_state, "optimizer": optimizer_state, "extra": dict(extra)}
        problem = None
        try:
            with _quiet():
                dcp.save(state, checkpoint_id=temporary, no_dist=not self._topology.is_distributed)
        except (OSError, CheckpointException) as error:
            problem = str(error).strip().splitlines()[0]
        self._raise_together(problem, temporary)
        manifest = None
        if self._topology.is_main:
            manifest, problem = self._commit(temporary, final, Manifest(step, progress, config, {}))
        self._raise_together(problem, temporary)
        manifest = self._topology.broadcast(manifest)
        if manifest is None:
            raise CheckpointError(f"checkpoint {final} was not committed")
        if self._topology.is_main:
            self._prune()
        return final, manifest

    def _raise_together(self, problem: str | None, temporary: Path) -> None:
        problems = self._topology.gather(problem)
        problem = self._topology.broadcast(problems[0] if problems else None)
        if problem is None:
            return
        if self._topology.is_main:
            shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointError(
            f"checkpoint {self._directory} could not be written: {problem}; the last whole one stays; free some space"
        )

    @staticmethod
    def _commit(temporary: Path, final: Path, manifest: Manifest) -> tuple[Manifest | None, str | None]:
        try:
            for path in sorted(temporary.iterdir()):
                manifest.files[path.name] = (path.stat().st_size, sha256_of(path))
            text = json.dumps({"format_version": FORMAT_VERSION, **vars(manifest)}, indent=1, allow_nan=False)
            with (temporary / MANIFEST).open("w", encoding="utf-8") as file:
                file.write(text + "\n")
                file.flush()
                os.fsync(file.fileno())
            _fsync_directory(temporary)
            shutil.rmtree(final, ignore_errors=True)  # a damaged one, or one of a lineage that was given up
            temporary.rename(final)
            _fsync_directory(final.parent)
        except OSError as error:
            return None, str(error)
        return manifest, None

    def _prune(self) -> None:
        for path in checkpoint_directories(self._directory)[self._keep :]:
            shutil.rmtree(path)

    def newest_whole(self) -> tuple[Path, Manifest] | None:
        """Return the newest checkpoint that matches its manifest; every rank must call this.

        Damaged ones are skipped with a warning that names them.
        """
        found = None
        if self._topology.is_main:
            for path in checkpoint_directories(self._directory):
                try:
                    found = path, read_manifest(path, verify=True)
                    break
                except CheckpointError as error:
                    logger.warning("%s; trying an older one", error)
        return self._topology.broadcast(found)

    def restore(self, path: Path, model: nn.Module, optimizer: Optimizer, extra: Mapping[str, Any]) -> None:
        """Load a checkpoint into model, optimizer and the tensors of ``extra``; every rank must call this."""
        model_state, optimizer_state = get_state_dict(model, optimizer)
        state = {"model": model_state, "optimizer": optimizer_state, "extra": dict(extra)}
        with _quiet():
            dcp.load(state, checkpoint_id=path, no_dist=not self._topology.is_distributed)
        set_state_dict(
            model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
        )


def checkpoint_directories(directory: Path) -> list[Path]:
    """Return the committed checkpoints of a run, newest first, not verified."""
    return sorted(directory.glob("step-*"), reverse=True)


def read_manifest(path: Path, *, verify: bool) -> Manifest:
    """Return the manifest of a checkpoint.

    Args:
        path: its directory.
        verify: compare size and SHA-256 of every file as well.

    Raises:
        CheckpointError: the checkpoint is not whole.
    """
    try:
        raw = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        if raw.pop("format_version") != FORMAT_VERSION:
            raise CheckpointError(f"checkpoint {path} has another format: this version reads {FORMAT_VERSION}")
        raw["files"] = {name: (int(size), str(digest)) for name, (size, digest) in raw["files"].items()}
        manifest = Manifest(**raw)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(f"checkpoint {path} is not whole: its manifest cannot be read ({error})") from error
    if verify:
        for name, (size, digest) in manifest.files.items():
            file = path / name
            if not file.is_file() or file.stat().st_size != size or sha256_of(file) != digest:
                raise CheckpointError(f"checkpoint {path} is not whole: {name} is not what its manifest says")
    return manifest


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep torch from warning that a single process saves as a single process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


def _fsync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
