from pathlib import Path

import pytest

from db.bundle.export import export_run
from db.bundle.manifest import BundleError
from db.bundle.restore import import_bundle
from elasticqa.checkpoint.manifest import read_manifest
from elasticqa.cli import export, import_
from tests.support.checkpoints import save_some
from tests.support.journals import write_run

JOURNAL = "journal/attempt-0001-node-00000.jsonl"


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


def test_import_restores_an_exported_run(run_dir: Path, tmp_path: Path) -> None:
    export_run(run_dir, tmp_path / "a.tar.gz")
    other = tmp_path / "other"
    restored = import_bundle(tmp_path / "a.tar.gz", other)
    assert (restored.run_id, restored.is_new) == ("run-a", True)
    left_out = ("checkpoints/", "model/", ".")
    expected = {name: data for name, data in _files(run_dir).items() if not name.startswith(left_out)}
    assert _files(other / "run-a") == expected
    assert [path.name for path in other.iterdir()] == ["run-a"]


def test_checkpoints_are_exported_on_request(run_dir: Path, tmp_path: Path) -> None:
    export_run(run_dir, tmp_path / "a.tar.gz", with_checkpoints=True)
    import_bundle(tmp_path / "a.tar.gz", tmp_path / "other")
    assert {"checkpoints/step-00000005/manifest.json", "model/config.json"} <= _files(tmp_path / "other/run-a").keys()


def test_imported_checkpoint_is_complete(run_dir: Path, tmp_path: Path) -> None:
    save_some(run_dir / "checkpoints", 7)
    export_run(run_dir, tmp_path / "a.tar.gz", with_checkpoints=True)
    import_bundle(tmp_path / "a.tar.gz", tmp_path / "other")
    assert read_manifest(tmp_path / "other/run-a/checkpoints/step-00000007", verify=True).step == 7


def test_equal_runs_give_equal_bundles(run_dir: Path, tmp_path: Path) -> None:
    export_run(run_dir, tmp_path / "a.tar.gz")
    export_run(run_dir, tmp_path / "b.tar.gz")
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()


def test_equal_run_stays_unchanged(run_dir: Path, runs: Path, tmp_path: Path) -> None:
    export_run(run_dir, tmp_path / "a.tar.gz")
    before = _files(runs)
    assert not import_bundle(tmp_path / "a.tar.gz", runs).is_new
    assert _files(runs) == before


def test_run_that_grew_since_the_export_is_kept(run_dir: Path, runs: Path, tmp_path: Path) -> None:
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
    with pytest.raises(BundleError, match=r"run run-a already exists with another annotations\.jsonl"):
        import_bundle(tmp_path / "a.tar.gz", runs)
    assert _files(runs) == before


def test_link_is_not_exported(run_dir: Path, tmp_path: Path) -> None:
    (run_dir / "traces" / "secret").symlink_to("/etc/hostname")
    with pytest.raises(BundleError, match="traces/secret is a symbolic link"):
        export_run(run_dir, tmp_path / "a.tar.gz")
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


@pytest.mark.parametrize("name", ["absent", "runs"])
def test_only_run_directories_are_exported(runs: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(BundleError, match="is not a run directory"):
        export_run(tmp_path / name, tmp_path / "a.tar.gz")


def test_failed_export_keeps_the_older_bundle(run_dir: Path, tmp_path: Path) -> None:
    target = tmp_path / "a.tar.gz"
    target.write_bytes(b"older")
    (run_dir / "link").symlink_to("x")
    with pytest.raises(BundleError):
        export_run(run_dir, target)
    assert target.read_bytes() == b"older"


def test_every_truncation_is_refused(run_dir: Path, tmp_path: Path) -> None:
    export_run(run_dir, tmp_path / "whole.tar.gz")
    whole = (tmp_path / "whole.tar.gz").read_bytes()
    other = tmp_path / "other"
    other.mkdir()
    # After the last member there are only the blank blocks that end a tar file and the checksum of gzip.
    for length in range(0, len(whole) - 64, 97):
        path = tmp_path / "cut.tar.gz"
        path.write_bytes(whole[:length])
        with pytest.raises(BundleError):
            import_bundle(path, other)
        assert not any(other.iterdir())


def test_run_moves_between_homes_by_export_and_import(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = {"ELASTICQA_HOME": str(run_dir.parent.parent)}, {"ELASTICQA_HOME": str(tmp_path / "second")}
    bundle = str(tmp_path / "bundle.tar.gz")
    assert export.main(["run-a", "-o", bundle], first) == 0
    assert import_.main([bundle], second) == 0
    assert import_.main([bundle], second) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ", 1)[1] for line in lines[1:]] == ["run run-a imported", "run run-a exists already"]
    assert (tmp_path / "second" / "runs" / "run-a" / JOURNAL).read_bytes() == (run_dir / JOURNAL).read_bytes()


def test_command_errors_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environ = {"ELASTICQA_HOME": str(tmp_path / "home")}
    (tmp_path / "b.tar.gz").write_bytes(b"junk")
    assert export.main(["nothing"], environ) == 2
    assert import_.main([str(tmp_path / "b.tar.gz")], environ) == 2
    assert capsys.readouterr().err.count("\n") == 2
