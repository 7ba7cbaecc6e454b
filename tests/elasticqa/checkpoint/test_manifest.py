"""What a manifest holds, and what is no checkpoint by it."""

import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticqa.checkpoint.manifest import checkpoint_directories, read_manifest
from tests.support.checkpoints import ALONE, flip, names, save, save_some
from tests.support.train_steps import CONFIG


def test_manifest_lists_every_file_with_size_and_digest(tmp_path: Path) -> None:
    path, manifest = save(ALONE, tmp_path, "none", 1)
    assert path == tmp_path / "step-00000001"
    assert set(manifest.files) == {file.name for file in path.iterdir()} - {"manifest.json"}
    assert manifest.num_bytes == sum((path / name).stat().st_size for name in manifest.files)
    assert read_manifest(path, verify=True) == manifest
    raw = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    assert raw["format_version"] == 1
    assert raw["progress"] == {"step": 1, "last_losses": [0.5]}
    assert raw["config"] == CONFIG.to_dict()


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def name_another_step(path: Path) -> None:
    manifest = path.parent / "manifest.json"
    manifest.write_text(manifest.read_text(encoding="utf-8").replace('"step": 2', '"step": 3'), encoding="utf-8")


def move_to_another_step(path: Path) -> None:
    shutil.rmtree(path.parent)
    shutil.copytree(path.parent.with_name("step-00000001"), path.parent)


def lie(what: str, value: object) -> Callable[[Path], None]:
    """Return what has a manifest say something else of a file, as if it had been written so."""

    def rewrite(path: Path) -> None:
        manifest = path.parent / "manifest.json"
        content = json.loads(manifest.read_text(encoding="utf-8"))
        size, digest = content["files"].pop(path.name)
        content["files"][value if what == "name" else path.name] = (value if what == "size" else size, digest)
        del content["digest"]
        manifest.write_text(json.dumps({**content, "digest": "?"}), encoding="utf-8")

    return rewrite


def become_a_pipe(path: Path) -> None:
    (path.parent / "manifest.json").unlink()
    os.mkfifo(path.parent / "manifest.json")


def raise_version(path: Path) -> None:
    manifest = path.parent / "manifest.json"
    manifest.write_text(manifest.read_text(encoding="utf-8").replace('version": 1', 'version": 2'), encoding="utf-8")


def halve_the_manifest(path: Path) -> None:
    manifest = path.parent / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[: manifest.stat().st_size // 2])


def nest(path: Path) -> None:
    (path.parent / "manifest.json").write_text("[" * 100_000, encoding="utf-8")


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (flip, "__0_0.distcp is not what its manifest says"),
        (truncate, "__0_0.distcp is not what its manifest says"),
        (Path.unlink, "__0_0.distcp is not what its manifest says"),
        (lambda path: (path.parent / "manifest.json").unlink(), "its manifest cannot be read"),
        (halve_the_manifest, "its manifest cannot be read"),
        (lambda path: (path.parent / "manifest.json").write_text("[]"), "its manifest cannot be read"),
        (nest, "its manifest cannot be read"),
        (name_another_step, "its manifest is not what was written"),
        (move_to_another_step, "its manifest is of another one"),
        (lie("size", 1e400), "its manifest cannot be read"),
        (lie("size", -1), "its manifest cannot be read"),
        (lie("name", "../../passwd"), "its manifest cannot be read"),
        (lie("name", "a\0"), "its manifest cannot be read"),
        (become_a_pipe, "its manifest cannot be read"),
        (raise_version, "has format 2: this version reads 1"),
    ],
)
def test_damaged_checkpoint_is_skipped_with_a_warning_that_names_it(
    damage: Callable[[Path], object], complaint: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpointer = save_some(tmp_path, 1, 2)
    damage(tmp_path / "step-00000002" / "__0_0.distcp")
    with caplog.at_level(logging.WARNING):
        found = checkpointer.newest_whole()
    assert found is not None
    assert found[0].name == "step-00000001"
    (warning,) = [
        record.getMessage() for record in caplog.records if record.name == "elasticqa.checkpoint.checkpointer"
    ]
    assert str(tmp_path / "step-00000002") in warning
    assert complaint in warning


def test_all_damaged_is_none(tmp_path: Path) -> None:
    checkpointer = save_some(tmp_path, 1)
    flip(tmp_path / "step-00000001" / ".metadata")
    assert checkpointer.newest_whole() is None


def test_what_is_no_checkpoint_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "step-00000001-mine").mkdir()
    (tmp_path / "step-00000009").write_text("a file", encoding="utf-8")
    save_some(tmp_path, 1, 2, keep=1)
    assert [path.name for path in checkpoint_directories(tmp_path)] == ["step-00000002"]
    assert names(tmp_path) == ["step-00000001-mine", "step-00000002", "step-00000009"]
