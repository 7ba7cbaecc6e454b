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

from db.bundle import BundleError, export_run, import_bundle
from db.bundle.manifest import is_safe_name
from elasticqa.commands import export, import_
from tests.journals import write_run

Member = tuple[tarfile.TarInfo, bytes]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


@pytest.fixture
def run_dir(runs: Path) -> Path:
    """Return a run with one file of every kind."""
    write_run(runs, "run-a")
    folder = runs / "run-a"
    for name, content in {
        "annotations.jsonl": b'{"n":1,"t":1.0,"kind":"tag","value":"x"}\n',
        "predictions/attempt-0001-step-00000005-eval.jsonl": b"{}\n",
        "traces/attempt-0001-rank-00000.json.gz": bytes(range(256)) * 40,
        "tensorboard/events.out.tfevents.1": b"",
        "checkpoints/step-00000005/manifest.json": b"{}",
        "model/config.json": b"{}",
        ".half-written": b"x",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def _files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def test_import_puts_back_what_was_exported(run_dir: Path, tmp_path: Path) -> None:
    export_run(run_dir, tmp_path / "a.tar.gz")
    other = tmp_path / "other"
    restored = import_bundle(tmp_path / "a.tar.gz", other)
    assert (restored.run_id, restored.is_new) == ("run-a", True)
    left_out = ("checkpoints/", "model/", ".")
    expected = {name: data for name, data in _files(run_dir).items() if not name.startswith(left_out)}
    assert _files(other / "run-a") == expected
    assert [path.name for path in other.iterdir()] == ["run-a"]


def test_checkpoints_go_along_on_demand(run_dir: Path, tmp_path: Path) -> None:
    export_run(run_dir, tmp_path / "a.tar.gz", with_checkpoints=True)
    import_bundle(tmp_path / "a.tar.gz", tmp_path / "other")
    assert {"checkpoints/step-00000005/manifest.json", "model/config.json"} <= _files(tmp_path / "other/run-a").keys()


def test_equal_runs_give_equal_bundles(run_dir: Path, tmp_path: Path) -> None:
    export_run(run_dir, tmp_path / "a.tar.gz")
    export_run(run_dir, tmp_path / "b.tar.gz")
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()


def test_equal_run_is_left_as_it_is(run_dir: Path, runs: Path, tmp_path: Path) -> None:
    export_run(run_dir, tmp_path / "a.tar.gz")
    before = _files(runs)
    assert not import_bundle(tmp_path / "a.tar.gz", runs).is_new
    assert _files(runs) == before


def test_run_that_grew_since_holds_its_bundle(run_dir: Path, runs: Path, tmp_path: Path) -> None:
    export_run(run_dir, tmp_path / "a.tar.gz")
    with (run_dir / "annotations.jsonl").open("a") as stream:
        stream.write('{"n":2,"t":2.0,"kind":"tag","value":"y"}\n')
    assert not import_bundle(tmp_path / "a.tar.gz", runs).is_new


@pytest.mark.parametrize("change", ["another text", None])
def test_other_run_of_the_same_id_is_refused(run_dir: Path, runs: Path, tmp_path: Path, change: str | None) -> None:
    export_run(run_dir, tmp_path / "a.tar.gz")
    if change is None:
        (run_dir / "annotations.jsonl").unlink()
    else:
        (run_dir / "annotations.jsonl").write_text(change)
    before = _files(runs)
    with pytest.raises(BundleError, match=r"run run-a is here already with another annotations\.jsonl"):
        import_bundle(tmp_path / "a.tar.gz", runs)
    assert _files(runs) == before


def test_link_is_not_exported(run_dir: Path, tmp_path: Path) -> None:
    (run_dir / "traces" / "secret").symlink_to("/etc/hostname")
    with pytest.raises(BundleError, match="traces/secret is a symbolic link"):
        export_run(run_dir, tmp_path / "a.tar.gz")
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


@pytest.mark.parametrize("name", ["absent", "runs"])
def test_only_run_directories_are_exported(runs: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(BundleError, match="is no run directory"):
        export_run(tmp_path / name, tmp_path / "a.tar.gz")


def test_failed_export_keeps_the_older_bundle(run_dir: Path, tmp_path: Path) -> None:
    target = tmp_path / "a.tar.gz"
    target.write_bytes(b"older")
    (run_dir / "link").symlink_to("x")
    with pytest.raises(BundleError):
        export_run(run_dir, target)
    assert target.read_bytes() == b"older"


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
    """Check that a bundle is refused in one line and leaves nothing, inside the runs directory or around it."""
    around = set(path.parent.rglob("*"))
    with pytest.raises(BundleError) as caught:
        import_bundle(path, runs)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    assert set(path.parent.rglob("*")) == around


def test_crafted_bundle_in_order_is_taken(runs: Path, tmp_path: Path) -> None:
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
def test_name_that_could_lead_out_is_refused(runs: Path, tmp_path: Path, name: str) -> None:
    files = {JOURNAL: FIRST, name: b"x"}
    path = _bundle(tmp_path / "a.tar.gz", _member("bundle.json", _manifest(files)), _member(f"run-a/{JOURNAL}", FIRST))
    _refused(path, runs, "could lead out of the run directory")


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
        ([(f"run-a/{JOURNAL}", FIRST + b"more")], "is not what its manifest says"),
        ([(f"run-a/{JOURNAL}", FIRST[:-1])], "is not what its manifest says"),
        ([(f"run-a/{JOURNAL}", FIRST.replace(b"1.0", b"2.0"))], "is not what its manifest says"),
        ([(f"run-a/{JOURNAL}", FIRST), ("run-a/extra", b"x")], "which its manifest does not name"),
        ([(f"run-a/{JOURNAL}", FIRST), (f"run-a/{JOURNAL}", FIRST)], "which its manifest does not name"),
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
        ({"files": [7]}, "is no file of a manifest"),
        ({"files": [{"name": "a", "bytes": -1, "sha256": "0" * 64}]}, "is not a size"),
        ({"files": [{"name": "a", "bytes": True, "sha256": "0" * 64}]}, "is not a size"),
        ({"files": [{"name": "a", "bytes": 1, "sha256": "0"}]}, "is not 64 hexadecimal digits"),
        ({"files": [{"name": "a", "bytes": 1, "sha256": "0" * 64}] * 2}, "a file is named twice"),
        ({"files": [{"name": "a", "bytes": 2**50, "sha256": "0" * 64}]}, "at most 64 GiB is taken"),
        ({"files": [{"name": "a", "bytes": 2**34, "sha256": "0" * 64}]}, "over 200 times its size"),
    ],
)
def test_manifest_is_checked(runs: Path, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    _refused(_crafted(tmp_path / "a.tar.gz", {JOURNAL: FIRST}, **changes), runs, message)


def test_file_and_folder_of_one_name_are_refused(runs: Path, tmp_path: Path) -> None:
    _refused(
        _crafted(tmp_path / "a.tar.gz", {JOURNAL: FIRST, "a": b"", "a/b": b""}), runs, "a file and a folder at once"
    )


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"notes.txt": b"x"}, "has no journal"),
        ({JOURNAL: FIRST.replace(b"run-a", b"run-b")}, "is of run 'run-b'"),
        ({JOURNAL: b"not json\n"}, "does not begin with an attempt line"),
        ({JOURNAL: b"[]\n"}, "does not begin with an attempt line"),
        ({JOURNAL: b"[" * 50_000}, "does not begin with an attempt line"),
    ],
)
def test_bundle_without_a_journal_of_the_run_is_refused(
    runs: Path, tmp_path: Path, files: dict[str, bytes], message: str
) -> None:
    _refused(_crafted(tmp_path / "a.tar.gz", files), runs, message)


def test_every_truncation_is_refused(run_dir: Path, tmp_path: Path) -> None:
    export_run(run_dir, tmp_path / "whole.tar.gz")
    whole = (tmp_path / "whole.tar.gz").read_bytes()
    other = tmp_path / "other"
    other.mkdir()
    # Behind the last member are only the blank blocks that end a tar file and the checksum of gzip.
    for length in range(0, len(whole) - 64, 97):
        path = tmp_path / "cut.tar.gz"
        path.write_bytes(whole[:length])
        _refused(path, other, "")


def _bomb_of_zeros(path: Path) -> None:
    with gzip.open(path, "wb", compresslevel=1) as stream:
        for _ in range(64):
            stream.write(bytes(2**20))


def _bomb_in_a_long_name(path: Path) -> None:
    """Write a header that claims a name of 1 GiB, which a careless reader takes into memory."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 2**30
    with gzip.open(path, "wb") as stream:
        stream.write(info.tobuf(tarfile.GNU_FORMAT))
        for _ in range(64):
            stream.write(b"a" * 2**20)


def _bomb_in_a_member(path: Path) -> None:
    _bundle(
        path,
        _member("bundle.json", _manifest({JOURNAL: FIRST})),
        _member(f"run-a/{JOURNAL}", bytes(2**26)),
    )


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
        (_bomb_in_a_long_name, "in one piece: no bundle has that"),
        (_bomb_in_a_member, "unpacks to more than its manifest announces"),
        (_bomb_of_nested_names, "damaged or cut off"),
    ],
)
def test_bombs_are_refused(runs: Path, tmp_path: Path, make: Callable[[Path], None], message: str) -> None:
    make(tmp_path / "a.tar.gz")
    _refused(tmp_path / "a.tar.gz", runs, message)


def test_commands_carry_a_run_from_one_home_to_another(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = {"ELASTICQA_HOME": str(run_dir.parent.parent)}, {"ELASTICQA_HOME": str(tmp_path / "second")}
    bundle = str(tmp_path / "bundle.tar.gz")
    assert export.main(["run-a", "-o", bundle], first) == 0
    assert import_.main([bundle], second) == 0
    assert import_.main([bundle], second) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ", 1)[1] for line in lines[1:]] == ["run run-a imported", "run run-a is here already"]
    assert (tmp_path / "second" / "runs" / "run-a" / JOURNAL).read_bytes() == (run_dir / JOURNAL).read_bytes()


def test_commands_say_what_is_wrong_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environ = {"ELASTICQA_HOME": str(tmp_path / "home")}
    (tmp_path / "b.tar.gz").write_bytes(b"junk")
    assert export.main(["nothing"], environ) == 2
    assert import_.main([str(tmp_path / "b.tar.gz")], environ) == 2
    assert capsys.readouterr().err.count("\n") == 2
