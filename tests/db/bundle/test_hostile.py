"""Hostile bundles write nothing outside their run, need little memory, and leave no files."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from db.bundle.manifest import BundleError, is_safe_name
from db.bundle.restore import import_bundle

Member = tuple[tarfile.TarInfo, bytes]

JOURNAL = "journal/attempt-0001-node-00000.jsonl"
FIRST = b'{"n":1,"t":1.0,"kind":"attempt","run_id":"run-a"}\n'


def _manifest(files: dict[str, bytes], /, **changes: Any) -> bytes:
    entries = [
        {"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()
    ]
    whole = {"format": "elasticqa-bundle", "version": 1, "run_id": "run-a", "files": entries, **changes}
    return json.dumps(whole).encode()


def _member(name: str, data: bytes, **changes: Any) -> Member:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in changes.items():
        setattr(info, key, value)
    return info, data


def _bundle(path: Path, *members: Member) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return path


def _crafted(path: Path, files: dict[str, bytes], /, **changes: Any) -> Path:
    members = [_member("bundle.json", _manifest(files, **changes))]
    return _bundle(path, *members, *(_member(f"run-a/{name}", data) for name, data in files.items()))


def _refused(path: Path, runs: Path, message: str) -> None:
    """Check that a bundle is refused in one line and writes no file."""
    around = set(path.parent.rglob("*"))
    with pytest.raises(BundleError) as caught:
        import_bundle(path, runs)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    assert set(path.parent.rglob("*")) == around


def test_valid_bundle_of_any_origin_is_imported(runs: Path, tmp_path: Path) -> None:
    path = _crafted(tmp_path / "a.tar.gz", {JOURNAL: FIRST, "notes.txt": b"x" * 1024})
    assert import_bundle(path, runs).is_new


@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "/etc/evil",
        "a/../../evil",
        "a//b",
        "a\\..\\evil",
        ".ssh/keys",
        "a/.",
        "",
        "a\x00b",
        "x" * 500,
        "a\nb",
    ],
)
def test_name_outside_the_run_directory_is_refused(runs: Path, tmp_path: Path, name: str) -> None:
    files = {JOURNAL: FIRST, name: b"x"}
    path = _bundle(tmp_path / "a.tar.gz", _member("bundle.json", _manifest(files)), _member(f"run-a/{JOURNAL}", FIRST))
    _refused(path, runs, "could leave the run directory")


@given(name=st.text(alphabet="./\\ab\x00~ \u202e", max_size=12))
def test_safe_names_stay_inside(name: str) -> None:
    inside = Path("/runs/run")
    if is_safe_name(name):
        resolved = Path(f"/runs/run/{name}")
        assert ".." not in resolved.parts
        assert resolved.is_relative_to(inside)
        assert resolved != inside


@pytest.mark.parametrize("run_id", ["../x", ".hidden", "", "a" * 65, "a/b", 7, None])
def test_run_id_that_is_no_plain_name_is_refused(runs: Path, tmp_path: Path, run_id: Any) -> None:
    _refused(_crafted(tmp_path / "a.tar.gz", {JOURNAL: FIRST}, run_id=run_id), runs, "is not a plain name")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE])
def test_member_that_is_no_plain_file_is_refused(runs: Path, tmp_path: Path, kind: bytes) -> None:
    files = {JOURNAL: FIRST, "link": b""}
    path = _bundle(
        tmp_path / "a.tar.gz",
        _member("bundle.json", _manifest(files)),
        _member(f"run-a/{JOURNAL}", FIRST),
        _member("run-a/link", b"", type=kind, linkname="/etc/passwd"),
    )
    _refused(path, runs, "is a link or a special file")


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([], "is missing: the bundle is cut off"),
        ([("run-a/other", FIRST)], "where its manifest has"),
        ([(f"run-b/{JOURNAL}", FIRST)], "where its manifest has"),
        ([(f"run-a/{JOURNAL}", FIRST + b"more")], "does not match its manifest"),
        ([(f"run-a/{JOURNAL}", FIRST[:-1])], "does not match its manifest"),
        ([(f"run-a/{JOURNAL}", FIRST.replace(b"1.0", b"2.0"))], "does not match its manifest"),
        ([(f"run-a/{JOURNAL}", FIRST), ("run-a/extra", b"x")], "which its manifest does not list"),
        ([(f"run-a/{JOURNAL}", FIRST), (f"run-a/{JOURNAL}", FIRST)], "which its manifest does not list"),
    ],
)
def test_members_must_be_those_of_the_manifest(
    runs: Path, tmp_path: Path, members: list[tuple[str, bytes]], message: str
) -> None:
    manifest = _member("bundle.json", _manifest({JOURNAL: FIRST}))
    path = _bundle(tmp_path / "a.tar.gz", manifest, *(_member(name, data) for name, data in members))
    _refused(path, runs, message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "does not say format="),
        ({"version": 2}, "version=2, this release reads 1"),
        ({"files": []}, "is not a list of 1 to"),
        ({"files": {}}, "is not a list of 1 to"),
        ({"files": [7]}, "is not an entry of a manifest"),
        ({"files": [{"name": "a", "bytes": -1, "sha256": "0" * 64}]}, "is not a size"),
        ({"files": [{"name": "a", "bytes": True, "sha256": "0" * 64}]}, "is not a size"),
        ({"files": [{"name": "a", "bytes": 1, "sha256": "0"}]}, "is not 64 hexadecimal digits"),
        ({"files": [{"name": "a", "bytes": 1, "sha256": "0" * 64}] * 2}, "a file is listed twice"),
        ({"files": [{"name": "a", "bytes": 2**50, "sha256": "0" * 64}]}, "the limit is 64 GiB"),
        ({"files": [{"name": "a", "bytes": 2**34, "sha256": "0" * 64}]}, "more than 200 times its size"),
    ],
)
def test_manifest_is_checked(runs: Path, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    _refused(_crafted(tmp_path / "a.tar.gz", {JOURNAL: FIRST}, **changes), runs, message)


def test_file_and_folder_of_one_name_are_refused(runs: Path, tmp_path: Path) -> None:
    _refused(_crafted(tmp_path / "a.tar.gz", {JOURNAL: FIRST, "a": b"", "a/b": b""}), runs, "both a file and a folder")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"notes.txt": b"x"}, "has no journal"),
        ({JOURNAL: FIRST.replace(b"run-a", b"run-b")}, "is of run 'run-b'"),
        ({JOURNAL: b"not json\n"}, "does not start with an attempt line"),
        ({JOURNAL: b"[]\n"}, "does not start with an attempt line"),
        ({JOURNAL: b"[" * 50_000}, "does not start with an attempt line"),
    ],
)
def test_bundle_without_a_journal_of_the_run_is_refused(
    runs: Path, tmp_path: Path, files: dict[str, bytes], message: str
) -> None:
    _refused(_crafted(tmp_path / "a.tar.gz", files), runs, message)


def _bomb_of_zeros(path: Path) -> None:
    with gzip.open(path, "wb", compresslevel=1) as stream:
        for _ in range(64):
            stream.write(bytes(2**20))


def _bomb_in_a_long_name(path: Path) -> None:
    """Write a header that claims a name of 1 GiB, which a naive reader loads into memory."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 2**30
    with gzip.open(path, "wb") as stream:
        stream.write(info.tobuf(tarfile.GNU_FORMAT))
        for _ in range(64):
            stream.write(b"a" * 2**20)


def _bomb_in_a_member(path: Path) -> None:
    _bundle(path, _member("bundle.json", _manifest({JOURNAL: FIRST})), _member(f"run-a/{JOURNAL}", bytes(2**26)))


def _bomb_of_nested_names(path: Path) -> None:
    """Write thousands of headers that each only describe the next one."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 2
    with gzip.open(path, "wb") as stream:
        for _ in range(5_000):
            stream.write(info.tobuf(tarfile.GNU_FORMAT) + b"a\0".ljust(512, b"\0"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_bomb_of_zeros, "its first member is not bundle.json"),
        (_bomb_in_a_long_name, "at once, which no bundle has"),
        (_bomb_in_a_member, "unpacks to more bytes than its manifest lists"),
        (_bomb_of_nested_names, "not a bundle, or damaged"),
    ],
)
def test_gzip_bombs_are_refused(runs: Path, tmp_path: Path, make: Callable[[Path], None], message: str) -> None:
    make(tmp_path / "a.tar.gz")
    _refused(tmp_path / "a.tar.gz", runs, message)
