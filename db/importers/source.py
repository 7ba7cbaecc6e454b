"""Digest, time and name of an imported run, from its files."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from db.importers.fields import storable
from db.journal_schema import LATEST_TIME


def digest_of(format_name: str, files: Sequence[Path]) -> str:
    """Return the SHA-256 of a format's name and the content of its files in order; their names do not count."""
    digest = hashlib.sha256(format_name.encode())
    for file in files:
        digest.update(file_digest(file).encode())
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def changed_at(path: Path) -> float:
    """Return the modification time of a file, in Unix seconds within the range of the record."""
    return min(max(0.0, path.stat().st_mtime), LATEST_TIME - 1)


def name_of(folder: Path) -> str:
    """Return a name for the run in a folder: the folder's, after its parent's if it is a generic name."""
    resolved = folder.resolve()
    is_generic = resolved.name.startswith(("version_", "checkpoint-"))
    return storable(f"{resolved.parent.name}/{resolved.name}" if is_generic else resolved.name)
