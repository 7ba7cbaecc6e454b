"""Writes a bundle of a run directory."""

import gzip
import hashlib
import io
import os
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from db.bundle.manifest import METADATA, NAME, BundleError, Entry, Manifest, is_safe_name
from db.storage.home import RUN_ID_PATTERN

CHECKPOINTS = frozenset({"checkpoints", "model"})


def export_run(run_dir: Path, target: Path, *, with_checkpoints: bool = False) -> Manifest:
    """Write a bundle of a run; equal runs give equal bytes.

    An active run is exported as it is. Hidden files are skipped, because they are incomplete.

    Args:
        run_dir: its name is the run id.
        target: replaced once the bundle is complete; unchanged on errors.
        with_checkpoints: include `checkpoints/` and `model/`.

    Raises:
        BundleError: there is no such run, it contains a link or an unsafe name, or a file changed.
    """
    if not RUN_ID_PATTERN.fullmatch(run_dir.name) or not (run_dir / "journal").is_dir():
        raise BundleError(run_dir, "is not a run directory: it has no journal; `elasticqa runs` lists the runs")
    skipped = frozenset() if with_checkpoints else CHECKPOINTS
    try:
        names = sorted(_names(run_dir, run_dir, skipped))
        manifest = Manifest(run_dir.name, tuple(_entry(run_dir, name) for name in names))
        _write(run_dir, manifest, target)
    except OSError as error:
        raise BundleError(target, f"cannot be written ({error.strerror or error}, {error.filename})") from error
    return manifest


def _names(run_dir: Path, folder: Path, skipped: frozenset[str]) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            name = Path(entry.path).relative_to(run_dir).as_posix()
            if (entry.name.startswith(".") and entry.name != METADATA) or name in skipped:
                continue
            if not is_safe_name(name):
                raise BundleError(run_dir, f"{name!r} is not a safe file name for a bundle: rename the file")
            if entry.is_symlink():
                raise BundleError(
                    run_dir, f"{name} is a symbolic link, which a bundle cannot contain: replace it with the file"
                )
            if entry.is_dir():
                yield from _names(run_dir, Path(entry.path), skipped)
            elif entry.is_file():
                yield name


def _entry(run_dir: Path, name: str) -> Entry:
    with (run_dir / name).open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return Entry(name, stream.tell(), digest)


def _write(run_dir: Path, manifest: Manifest, target: Path) -> None:
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            # Leave out time and name in the gzip header, so that equal runs give equal bytes.
            with (
                gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
                tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
            ):
                data = manifest.to_json()
                tar.addfile(_member(NAME, len(data)), io.BytesIO(data))
                for entry in manifest.entries:
                    with (run_dir / entry.name).open("rb") as stream:
                        checked = _Checked(stream)
                        # Write only the bytes that the manifest counts: a journal may have grown since.
                        tar.addfile(_member(f"{manifest.run_id}/{entry.name}", entry.num_bytes), checked)  # type: ignore[arg-type] # only read() is used
                        if checked.digest.hexdigest() != entry.sha256:
                            raise BundleError(run_dir / entry.name, "changed during the export: try again")
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(target)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _member(name: str, num_bytes: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size = num_bytes
    member.mode = 0o644
    return member


class _Checked:
    """A file that computes the digest of the bytes read from it."""

    def __init__(self, stream: io.BufferedReader) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()

    def read(self, size: int) -> bytes:
        """Return the next bytes."""
        data = self._stream.read(size)
        self.digest.update(data)
        return data
