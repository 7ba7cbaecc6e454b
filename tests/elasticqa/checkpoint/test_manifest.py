"""What a manifest holds, and what is no checkpoint by it."""

import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticqa.checkpoint.manifest import checkpoint_directories, read_manifest
from tests.support.checkpoints import ALONE, flip, names, newest_step, save, save_some
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


def move_to_another_step(path: Path) -> None:
    shutil.rmtree(path.parent)
    shutil.copytree(path.parent.with_name("step-00000001"), path.parent)


def manifest_of(path: Path) -> Path:
    return path.parent / "manifest.json"


def replaced(old: str, new: str) -> Callable[[Path], object]:
    """Return a function that replaces text in the manifest beside a file."""
    return lambda path: manifest_of(path).write_text(manifest_of(path).read_text().replace(old, new))


def truncated(path: Path, num_bytes: int) -> None:
    path.write_bytes(path.read_bytes()[:num_bytes])


def become_a_pipe(path: Path) -> None:
    manifest_of(path).unlink()
    os.mkfifo(manifest_of(path))


def with_other(what: str, value: object) -> Callable[[Path], None]:
    """Return a function that rewrites the manifest with another name or size of a file, and a digest that fits."""

    def rewrite(path: Path) -> None:
        content = json.loads(manifest_of(path).read_text(encoding="utf-8"))
        size, digest = content["files"].pop(path.name)
        content["files"][value if what == "name" else path.name] = (value if what == "size" else size, digest)
        del content["digest"]
        manifest_of(path).write_text(json.dumps({**content, "digest": "?"}), encoding="utf-8")

    return rewrite


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (flip, "__0_0.distcp does not match its manifest"),
        (lambda path: truncated(path, -1), "__0_0.distcp does not match its manifest"),
        (Path.unlink, "__0_0.distcp does not match its manifest"),
        (lambda path: manifest_of(path).unlink(), "its manifest cannot be read"),
        (lambda path: truncated(manifest_of(path), 200), "its manifest cannot be read"),
        (lambda path: manifest_of(path).write_text("[]"), "its manifest cannot be read"),
        (lambda path: manifest_of(path).write_text("[" * 100_000), "its manifest cannot be read"),
        (replaced('"step": 2', '"step": 3'), "its manifest does not match its own SHA-256"),
        (move_to_another_step, "its manifest belongs to another checkpoint"),
        (with_other("size", 1e400), "its manifest cannot be read"),
        (with_other("size", -1), "its manifest cannot be read"),
        (with_other("name", "../../passwd"), "its manifest cannot be read"),
        (with_other("name", "a\0"), "its manifest cannot be read"),
        (become_a_pipe, "its manifest cannot be read"),
        (replaced('version": 1', 'version": 2'), "has format 2: this version reads 1"),
    ],
)
def test_damaged_checkpoint_is_skipped_with_a_warning_that_names_it(
    damage: Callable[[Path], object], problem: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpointer = save_some(tmp_path, 1, 2)
    damage(tmp_path / "step-00000002" / "__0_0.distcp")
    with caplog.at_level(logging.WARNING, "elasticqa.checkpoint.checkpointer"):
        assert newest_step(checkpointer) == 1
    (warning,) = (item.getMessage() for item in caplog.records if item.name == "elasticqa.checkpoint.checkpointer")
    assert f"{tmp_path / 'step-00000002'}" in warning
    assert problem in warning
    assert checkpointer.skipped == [warning]
    assert warning.endswith("trying an older one")


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
