"""Imports a bundle, which may be damaged or hostile, as a run directory."""

import gzip
import hashlib
import json
import shutil
import tarfile
import zlib
from pathlib import Path
from typing import IO

from db.bundle.manifest import MAX_MANIFEST_BYTES, NAME, BundleError, Entry, Manifest, parse_manifest
from db.storage.durable import AddedRun, commit_run_dir, fsync_path, staged_run_dir
from db.storage.run_files import JOURNAL_PATH

MAX_RATIO = 200
"""Limit of unpacked over packed bytes; journals reach about 20."""
_FREE_RATIO_BYTES = 64 * 2**20
"""Bundles of at most this size, unpacked, may have any ratio."""
_CHUNK_BYTES = 2**20
_DAMAGE = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, RecursionError, ValueError, OverflowError)


def import_bundle(path: Path, runs_dir: Path) -> AddedRun:
    """Import the run of a bundle under its run id; an existing run with the same files stays unchanged.

    Raises:
        BundleError: the bundle is damaged or hostile, or another run has its id; the runs directory is unchanged.
    """
    try:
        with path.open("rb") as file, gzip.GzipFile(fileobj=file, mode="rb") as unpacked:
            return _import(path, _Bounded(path, unpacked), runs_dir)
    except BundleError:
        raise
    except _DAMAGE as error:
        raise BundleError(path, f"is not a bundle, or damaged ({error})") from error
    except OSError as error:
        raise BundleError(path, f"cannot be imported into {runs_dir} ({error.strerror or error})") from error


def _import(path: Path, stream: "_Bounded", runs_dir: Path) -> AddedRun:
    with tarfile.open(fileobj=stream, mode="r:") as tar:  # type: ignore[call-overload] # read, seek and tell are what it uses
        manifest = _read_manifest(path, tar)
        target = runs_dir / manifest.run_id
        if target.exists():
            _refuse_unless_held(path, manifest, target)
            return AddedRun(manifest.run_id, is_new=False)
        with staged_run_dir(runs_dir) as folder:
            _check_room(path, manifest, folder)
            stream.allow(manifest)
            _unpack(path, tar, manifest, folder)
            _check_journal(path, manifest, folder)
            if commit_run_dir(folder, target):
                return AddedRun(manifest.run_id, is_new=True)
        _refuse_unless_held(path, manifest, target)
        return AddedRun(manifest.run_id, is_new=False)


def _read_manifest(path: Path, tar: tarfile.TarFile) -> Manifest:
    first = tar.next()
    if first is None or first.name != NAME or not first.isreg():
        raise BundleError(path, f"its first member is not {NAME}: make bundles with `elasticqa export`")
    if first.size > MAX_MANIFEST_BYTES:
        raise BundleError(path, f"{NAME} has {first.size:,} bytes, at most {MAX_MANIFEST_BYTES:,} are read")
    return parse_manifest(path, _opened(tar, first).read())


def _check_room(path: Path, manifest: Manifest, folder: Path) -> None:
    most = max(_FREE_RATIO_BYTES, MAX_RATIO * path.stat().st_size)
    if manifest.num_bytes > most:
        raise BundleError(
            path,
            f"{manifest.num_bytes:,} bytes unpacked is more than {MAX_RATIO} times its size, too much for a run",
        )
    free = shutil.disk_usage(folder).free
    if manifest.num_bytes > free:
        raise BundleError(path, f"{manifest.num_bytes:,} bytes unpacked, but only {free:,} are free in {folder.parent}")


def _unpack(path: Path, tar: tarfile.TarFile, manifest: Manifest, folder: Path) -> None:
    for entry in manifest.entries:
        member = tar.next()
        wanted = f"{manifest.run_id}/{entry.name}"
        if member is None:
            raise BundleError(path, f"{entry.name} is missing: the bundle is cut off")
        if member.name != wanted:
            raise BundleError(path, f"has {member.name!r:.120} where its manifest has {wanted}")
        if not member.isreg() or member.issparse():
            raise BundleError(path, f"{entry.name} is a link or a special file, which bundles do not contain")
        _write(path, _opened(tar, member), entry, folder / entry.name)
    if (extra := tar.next()) is not None:
        raise BundleError(path, f"has {extra.name!r:.120}, which its manifest does not list")


def _write(path: Path, source: IO[bytes], entry: Entry, target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target_file = target.open("xb")
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise BundleError(path, f"{entry.name} is both a file and a folder") from error
    digest, num_bytes = hashlib.sha256(), 0
    with target_file as file:
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
            num_bytes += len(chunk)
            file.write(chunk)
    if num_bytes != entry.num_bytes or digest.hexdigest() != entry.sha256:
        raise BundleError(path, f"{entry.name} does not match its manifest (size or sha256): the bundle is damaged")
    fsync_path(target)


def _check_journal(path: Path, manifest: Manifest, folder: Path) -> None:
    """Refuse a bundle that ingest could not read: it has no journal, or a journal of another run."""
    journals = [entry.name for entry in manifest.entries if JOURNAL_PATH.fullmatch(entry.name)]
    if not journals:
        raise BundleError(path, "has no journal/attempt-*-node-*.jsonl, so it contains no run")
    for name in journals:
        with (folder / name).open("rb") as stream:
            first = stream.readline(_CHUNK_BYTES)
        try:
            run_id = json.loads(first)["run_id"]
        except (ValueError, RecursionError, TypeError, KeyError) as error:
            raise BundleError(path, f"{name} does not start with an attempt line") from error
        if run_id != manifest.run_id:
            raise BundleError(path, f"{name} is of run {run_id!r:.80}, its manifest of {manifest.run_id}")


def _refuse_unless_held(path: Path, manifest: Manifest, target: Path) -> None:
    """Refuse a bundle if the existing run has other content; an existing file may be longer, since files only grow."""
    for entry in manifest.entries:
        if not _starts_with(target / entry.name, entry):
            raise BundleError(
                path,
                f"run {manifest.run_id} already exists with another {entry.name}: to replace it, "
                f"move {target} away first",
            )


def _starts_with(file: Path, entry: Entry) -> bool:
    if not file.is_file():
        return False
    digest, left = hashlib.sha256(), entry.num_bytes
    with file.open("rb") as stream:
        while left and (chunk := stream.read(min(left, _CHUNK_BYTES))):
            digest.update(chunk)
            left -= len(chunk)
    return not left and digest.hexdigest() == entry.sha256


def _opened(tar: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    file = tar.extractfile(member)
    assert file is not None, member.name
    return file


class _Bounded:
    """A decompressed stream with a limit on each read and on the total.

    A tar header may declare a name of any length, which the tar reader would read into memory at once.
    """

    def __init__(self, path: Path, stream: gzip.GzipFile) -> None:
        self._path = path
        self._stream = stream
        self._most = MAX_MANIFEST_BYTES + _CHUNK_BYTES

    def allow(self, manifest: Manifest) -> None:
        """Raise the limit to the size in a manifest, including headers."""
        self._most += manifest.num_bytes + len(manifest.entries) * 8 * 512 + _CHUNK_BYTES

    def read(self, size: int) -> bytes:
        """Return the next bytes."""
        if size > MAX_MANIFEST_BYTES:
            raise BundleError(self._path, f"a header or member of {size:,} bytes at once, which no bundle has")
        self._check(self._stream.tell() + size)
        return self._stream.read(size)

    def seek(self, position: int) -> int:
        """Move to a position."""
        self._check(position)
        return self._stream.seek(position)

    def tell(self) -> int:
        """Return the position."""
        return self._stream.tell()

    def _check(self, position: int) -> None:
        if position > self._most:
            raise BundleError(self._path, "unpacks to more bytes than its manifest lists")
