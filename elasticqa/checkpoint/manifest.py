"""The manifest of a checkpoint: size and SHA-256 of every file. A directory without a manifest is incomplete."""

import glob
import hashlib
import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from db.storage.durable import fsync_path
from elasticqa.errors import CheckpointError

MANIFEST = "manifest.json"
FORMAT_VERSION = 1
_NAME = re.compile(r"step-(\d{8,})")
_FILE = re.compile(r"\.?[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True)
class Manifest:
    """Content of a whole checkpoint."""

    step: int
    progress: dict[str, Any]
    config: dict[str, Any]
    files: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Name -> (bytes, SHA-256 in hex)."""
    reason: str = "final"
    """`interval`, `evaluation`, `signal` or `final`."""
    saved_at: float = field(default_factory=time.time)
    """Unix time at which the state was copied."""

    @property
    def num_bytes(self) -> int:
        """Bytes of all files."""
        return sum(size for size, _ in self.files.values())


def directory_name(step: int) -> str:
    """Return the name of the checkpoint after ``step`` optimizer steps."""
    return f"step-{step:08d}"


def step_of(path: Path) -> int:
    """Return the optimizer steps in the name of a checkpoint's directory; -1 if it is not such a name."""
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else -1


def checkpoint_directories(directory: Path) -> list[Path]:
    """Return the committed checkpoints of a run, newest first, without verifying them."""
    found = [path for path in directory.glob("step-*") if step_of(path) >= 0 and path.is_dir()]
    return sorted(found, key=step_of, reverse=True)


def describe(path: Path, pattern: str) -> dict[str, tuple[int, str]]:
    """Return size and SHA-256 of the files of a directory whose names match the pattern."""
    return {file.name: (file.stat().st_size, sha256_of(file)) for file in sorted(path.glob(pattern))}


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Add the files that are missing from a manifest, and write it durably."""
    for file in sorted(path.iterdir()):
        if file.name not in manifest.files:
            manifest.files.update(describe(path, glob.escape(file.name)))
    write_durably(path / MANIFEST, _text_of(manifest))


def amend_manifest(path: Path, progress: Mapping[str, Any]) -> None:
    """Add fields to the progress of a whole checkpoint, atomically.

    Raises:
        CheckpointError: its manifest is damaged.
        OSError: the manifest cannot be written; the old one is kept.
    """
    manifest = read_manifest(path, verify=False)
    write_durably(path / MANIFEST, _text_of(replace(manifest, progress={**manifest.progress, **progress})))


def _text_of(manifest: Manifest) -> str:
    content = {"format_version": FORMAT_VERSION, **vars(manifest)}
    return json.dumps({**content, "digest": _digest_of(content)}, indent=1, allow_nan=False) + "\n"


def read_manifest(path: Path, *, verify: bool) -> Manifest:
    """Return the manifest of the checkpoint in a directory; ``verify`` checks size and SHA-256 of every file as well.

    Raises:
        CheckpointError: the checkpoint is not whole.
    """
    manifest = _written(path)
    if manifest.step != step_of(path) or not isinstance(manifest.progress, dict):
        raise CheckpointError(f"checkpoint {path} is not whole: its manifest belongs to another checkpoint")
    if verify:
        for name, (size, digest) in manifest.files.items():
            if not _is_as_written(path / name, size, digest):
                raise CheckpointError(f"checkpoint {path} is not whole: {name} does not match its manifest")
    return manifest


def _written(path: Path) -> Manifest:
    """Return the manifest in a directory after checking its own digest."""
    try:
        if not (path / MANIFEST).is_file():
            raise FileNotFoundError("no such file")
        raw = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        version, digest = raw.pop("format_version"), raw.pop("digest", None)
        is_as_written = digest == _digest_of({"format_version": version, **raw})
        raw["files"] = {name: _entry(name, *entry) for name, entry in raw["files"].items()}
        manifest = Manifest(**raw)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError) as error:
        raise CheckpointError(f"checkpoint {path} is not whole: its manifest cannot be read ({error})") from error
    if version != FORMAT_VERSION:
        raise CheckpointError(f"checkpoint {path} has format {version!r}: this version reads {FORMAT_VERSION}")
    if not is_as_written:
        raise CheckpointError(f"checkpoint {path} is not whole: its manifest does not match its own SHA-256")
    return manifest


def _digest_of(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a manifest's other fields, which detects flipped bits in readable JSON."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _entry(name: str, size: object, digest: object) -> tuple[int, str]:
    """Return size and digest of a file in a manifest; its name must not be a path outside the checkpoint."""
    if not _FILE.fullmatch(name) or type(size) is not int or size < 0 or not isinstance(digest, str):
        raise ValueError(f"{name!r:.80} is not a valid name of a file in a checkpoint")
    return size, digest


def has_all_bytes(path: Path) -> bool:
    """Whether every file of the manifest has its size; fast, but does not detect flipped bits."""
    try:
        manifest = read_manifest(path, verify=False)
        return all((path / name).stat().st_size == size for name, (size, _) in manifest.files.items())
    except (CheckpointError, OSError):
        return False


def _is_as_written(file: Path, size: int, digest: str) -> bool:
    try:
        return file.stat().st_size == size and sha256_of(file) == digest
    except OSError:  # the file is missing or has unreadable blocks
        return False


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_durably(path: Path, text: str) -> None:
    """Write or replace a small file, durably and atomically."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
    fsync_path(path.parent)
