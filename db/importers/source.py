"""Files of a foreign run: their digest, and the only time that most of them tell, that of their last change."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from db.importers.fields import storable
from db.journal_schema import LATEST_TIME

_CHUNK_BYTES = 2**20


def digest_of(format_name: str, files: Sequence[Path]) -> str:
    """Return the SHA-256 of a format's name and the content of its files in order, whatever they are called."""
    digest = hashlib.sha256(format_name.encode())
    for file in files:
        digest.update(file_digest(file).encode())
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def changed_at(path: Path) -> float:
    """Return the Unix time of the last change of a file, within the times that the record can hold."""
    return min(max(0.0, path.stat().st_mtime), LATEST_TIME - 1)


def name_of(folder: Path) -> str:
    """Return a name for the run in a folder: the folder's, with its parent's where it says little."""
    resolved = folder.resolve()
    says_little = resolved.name.startswith(("version_", "checkpoint-"))
    return storable(f"{resolved.parent.name}/{resolved.name}" if says_little else resolved.name)
