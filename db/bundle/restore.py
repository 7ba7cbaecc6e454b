"""From a bundle, whoever made it, to a run directory."""

import gzip
import hashlib
import json
import re
import shutil
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from db.bundle.manifest import MOST_MANIFEST_BYTES, NAME, BundleError, Entry, Manifest, parse_manifest
from db.storage.durable import commit_run_dir, fsync_path, staged_run_dir

MOST_RATIO = 200
"""Unpacked bytes for each packed one; journals reach about 20."""
_FREE_RATIO_BYTES = 64 * 2**20
"""Small bundles may have any ratio."""
_CHUNK_BYTES = 2**20
_JOURNAL = re.compile(r"journal/attempt-\d{1,6}-node-\d{1,6}\.jsonl")


@dataclass(frozen=True)
class Restored:
    """A run that is in the runs directory now."""

    run_id: str
    is_new: bool


def import_bundle(path: Path, runs_dir: Path) -> Restored:
    """Put the run of a bundle under its run id; a run that is here already with all of it stays as it is.

    Raises:
        BundleError: the bundle is damaged or hostile, or another run has its id; nothing is left behind.
    """
    try:
        with path.open("rb") as file, gzip.GzipFile(fileobj=file, mode="rb") as unpacked:
            return _import(path, _Bounded(path, unpacked), runs_dir)
    except BundleError:
        raise
    except (
        tarfile.TarError,
        EOFError,
        zlib.error,
        gzip.BadGzipFile,
        RecursionError,
        ValueError,
        OverflowError,
    ) as error:
        raise BundleError(path, f"is no bundle, damaged or cut off ({error})") from error
    except OSError as error:
        raise BundleError(path, f"cannot be taken into {runs_dir} ({error.strerror or error})") from error


def _import(path: Path, stream: "_Bounded", runs_dir: Path) -> Restored:
    with tarfile.open(fileobj=stream, mode="r:") as tar:  # type: ignore[call-overload] # read, seek and tell are what it uses
        manifest = _read_manifest(path, tar)
        target = runs_dir / manifest.run_id
        if target.exists():
            _refuse_unless_held(path, manifest, target)
            return Restored(manifest.run_id, is_new=False)
        with staged_run_dir(runs_dir) as folder:
            _check_room(path, manifest, folder)
            stream.allow(manifest)
            _unpack(path, tar, manifest, folder)
            _check_journal(path, manifest, folder)
            if commit_run_dir(folder, target):
                return Restored(manifest.run_id, is_new=True)
        _refuse_unless_held(path, manifest, target)
        return Restored(manifest.run_id, is_new=False)


def _read_manifest(path: Path, tar: tarfile.TarFile) -> Manifest:
    first = tar.next()
    if first is None or first.name != NAME or not first.isreg():
        raise BundleError(path, f"its first member is not {NAME}: make bundles with `elasticqa export`")
    if first.size > MOST_MANIFEST_BYTES:
        raise BundleError(path, f"{NAME} has {first.size:,} bytes, at most {MOST_MANIFEST_BYTES:,} are read")
    return parse_manifest(path, _opened(tar, first).read())


def _check_room(path: Path, manifest: Manifest, folder: Path) -> None:
    most = max(_FREE_RATIO_BYTES, MOST_RATIO * path.stat().st_size)
    if manifest.num_bytes > most:
        raise BundleError(
            path,
            f"{manifest.num_bytes:,} bytes unpacked is over {MOST_RATIO} times its size: no run compresses so well",
        )
    free = shutil.disk_usage(folder).free
    if manifest.num_bytes > free:
        raise BundleError(path, f"{manifest.num_bytes:,} bytes unpacked, but {free:,} are free beside {folder.parent}")


def _unpack(path: Path, tar: tarfile.TarFile, manifest: Manifest, folder: Path) -> None:
    for entry in manifest.entries:
        member = tar.next()
        wanted = f"{manifest.run_id}/{entry.name}"
        if member is None:
            raise BundleError(path, f"{entry.name} is missing: the bundle is cut off")
        if member.name != wanted:
            raise BundleError(path, f"has {member.name!r:.120} where its manifest has {wanted}")
        if not member.isreg() or member.issparse():
            raise BundleError(path, f"{entry.name} is a link or a special file, which no bundle has")
        _write(path, _opened(tar, member), entry, folder / entry.name)
    if (extra := tar.next()) is not None:
        raise BundleError(path, f"has {extra.name!r:.120}, which its manifest does not name")


def _write(path: Path, source: IO[bytes], entry: Entry, target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target_file = target.open("xb")
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise BundleError(path, f"{entry.name} is a file and a folder at once") from error
    digest, num_bytes = hashlib.sha256(), 0
    with target_file as file:
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
            num_bytes += len(chunk)
            file.write(chunk)
    if num_bytes != entry.num_bytes or digest.hexdigest() != entry.sha256:
        raise BundleError(path, f"{entry.name} is not what its manifest says (size or sha256): the bundle is damaged")
    fsync_path(target)


def _check_journal(path: Path, manifest: Manifest, folder: Path) -> None:
    """Refuse what ingest would never show: no journal, or one of another run."""
    journals = [entry.name for entry in manifest.entries if _JOURNAL.fullmatch(entry.name)]
    if not journals:
        raise BundleError(path, "has no journal/attempt-*-node-*.jsonl, so there is no run in it")
    for name in journals:
        with (folder / name).open("rb") as stream:
            first = stream.readline(_CHUNK_BYTES)
        try:
            run_id = json.loads(first)["run_id"]
        except (ValueError, RecursionError, TypeError, KeyError) as error:
            raise BundleError(path, f"{name} does not begin with an attempt line") from error
        if run_id != manifest.run_id:
            raise BundleError(path, f"{name} is of run {run_id!r:.80}, its manifest of {manifest.run_id}")


def _refuse_unless_held(path: Path, manifest: Manifest, target: Path) -> None:
    """Files only grow at their end, so a run here holds a file of the bundle if it begins with it."""
    for entry in manifest.entries:
        if not _begins_with(target / entry.name, entry):
            raise BundleError(
                path,
                f"run {manifest.run_id} is here already with another {entry.name}: to replace it, "
                f"move {target} away first",
            )


def _begins_with(file: Path, entry: Entry) -> bool:
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
    """An unpacked stream that gives neither much at once nor much in all.

    A header may claim a long name of any size, which the tar reader would take into memory in one piece.
    """

    def __init__(self, path: Path, stream: gzip.GzipFile) -> None:
        self._path = path
        self._stream = stream
        self._most = MOST_MANIFEST_BYTES + _CHUNK_BYTES

    def allow(self, manifest: Manifest) -> None:
        """Raise the limit to what a manifest announces, headers included."""
        self._most += manifest.num_bytes + len(manifest.entries) * 8 * 512 + _CHUNK_BYTES

    def read(self, size: int) -> bytes:
        """Return the next bytes."""
        if size > MOST_MANIFEST_BYTES:
            raise BundleError(self._path, f"a header or member of {size:,} bytes in one piece: no bundle has that")
        self._check(self._stream.tell() + size)
        return self._stream.read(size)

    def seek(self, position: int) -> int:
        """Go on at a position."""
        self._check(position)
        return self._stream.seek(position)

    def tell(self) -> int:
        """Return the position."""
        return self._stream.tell()

    def _check(self, position: int) -> None:
        if position > self._most:
            raise BundleError(self._path, "unpacks to more than its manifest announces")
