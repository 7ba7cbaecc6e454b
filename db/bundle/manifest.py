"""The manifest, which is the first member of a bundle: run id, and size and digest of every file."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from db.storage.home import RUN_ID_PATTERN

NAME = "bundle.json"
FORMAT = "elasticqa-bundle"
VERSION = 1
MAX_FILES = 100_000
MAX_MANIFEST_BYTES = 32 * 2**20
MAX_BYTES = 64 * 2**30
"""Limit of the unpacked files together."""
_MAX_NAME_CHARACTERS = 400
METADATA = ".metadata"
"""The only hidden file of a run: torch writes it in each checkpoint."""
# One part of a path: not hidden (this excludes "." and ".."), no separator, no control character.
_PART = re.compile(r"[^./\\\x00-\x1f\x7f\ud800-\udfff][^/\\\x00-\x1f\x7f\ud800-\udfff]{0,199}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class BundleError(ValueError):
    """A bundle that cannot be written or imported; the message is one line with file and rule."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(" ".join(f"{path}: {problem}".split()))


@dataclass(frozen=True)
class Entry:
    """A file of a run."""

    name: str
    """Its path in the run directory, parts joined by "/"."""
    num_bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """Contents of a bundle, in the order of its members."""

    run_id: str
    entries: tuple[Entry, ...]

    @property
    def num_bytes(self) -> int:
        """Total of all files, unpacked."""
        return sum(entry.num_bytes for entry in self.entries)

    def to_json(self) -> bytes:
        """Return the content of the first member."""
        files = [{"name": entry.name, "bytes": entry.num_bytes, "sha256": entry.sha256} for entry in self.entries]
        return json.dumps({"format": FORMAT, "version": VERSION, "run_id": self.run_id, "files": files}).encode()


def is_safe_name(name: str) -> bool:
    """Return whether a path stays inside the run directory on every system and is not hidden (except `METADATA`).

    >>> [is_safe_name(name) for name in ("journal/a.jsonl", "../a", "/a", "a//b", "a/.b")]
    [True, False, False, False, False]
    """
    parts = name.split("/")
    return len(name) <= _MAX_NAME_CHARACTERS and all(part == METADATA or _PART.fullmatch(part) for part in parts)


def parse_manifest(path: Path, data: bytes) -> Manifest:
    """Return the manifest of the bundle at `path`.

    Raises:
        BundleError: the data is not a manifest, is from a newer release, or has an unsafe name.
    """
    try:
        top = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BundleError(path, f"{NAME} is not JSON ({type(error).__name__}: {error})") from error
    if not isinstance(top, dict) or top.get("format") != FORMAT:
        raise BundleError(path, f"{NAME} does not say format={FORMAT!r}: make bundles with `elasticqa export`")
    if top.get("version") != VERSION:
        raise BundleError(path, f"version={top.get('version')!r:.40}, this release reads {VERSION}: upgrade elasticqa")
    run_id, files = top.get("run_id"), top.get("files")
    if not isinstance(run_id, str) or not RUN_ID_PATTERN.fullmatch(run_id):
        raise BundleError(path, f"run_id={run_id!r:.80} is not a plain name of up to 64 letters, digits, '.', '_', '-'")
    if not isinstance(files, list) or not 0 < len(files) <= MAX_FILES:
        raise BundleError(path, f"files is not a list of 1 to {MAX_FILES:,} files")
    manifest = Manifest(run_id, tuple(_entry(path, item) for item in files))
    names = {entry.name for entry in manifest.entries}
    if len(names) < len(manifest.entries):
        raise BundleError(path, "a file is listed twice")
    if manifest.num_bytes > MAX_BYTES:
        raise BundleError(path, f"{manifest.num_bytes:,} bytes unpacked, the limit is {MAX_BYTES // 2**30} GiB")
    return manifest


def _entry(path: Path, item: Any) -> Entry:
    if not isinstance(item, Mapping):
        raise BundleError(path, f"{item!r:.80} is not an entry of a manifest")
    name, num_bytes, digest = item.get("name"), item.get("bytes"), item.get("sha256")
    if not isinstance(name, str) or not is_safe_name(name):
        raise BundleError(path, f"name={name!r:.120} could leave the run directory")
    if type(num_bytes) is not int or not 0 <= num_bytes < 2**63:
        raise BundleError(path, f"{name} has bytes={num_bytes!r:.40}, which is not a size")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise BundleError(path, f"{name} has sha256={digest!r:.80}, which is not 64 hexadecimal digits")
    return Entry(name, num_bytes, digest)
