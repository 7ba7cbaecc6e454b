"""Paths of a journal are found only inside the directory of their run."""

import os
from pathlib import Path

import pytest

from db.storage.run_files import file_in_run


@pytest.fixture
def runs_dir(tmp_path: Path) -> Path:
    run = tmp_path / "runs" / "a"
    (run / "traces").mkdir(parents=True)
    (run / "traces" / "t.json").write_text("{}")
    (tmp_path / "runs" / "b").mkdir()
    (tmp_path / "runs" / "b" / "secret").write_text("of another run")
    (tmp_path / "dashboard-token").write_text("secret")
    return tmp_path / "runs"


def test_file_of_the_run_is_found(runs_dir: Path) -> None:
    found = file_in_run(runs_dir, "a", "traces/t.json")
    assert found is not None
    assert found.read_text() == "{}"
    assert file_in_run(runs_dir, "a", "traces/../traces/t.json") == found


@pytest.mark.parametrize(
    "path",
    [
        "../b/secret",
        "../../dashboard-token",
        "traces/../../b/secret",
        "{outside}/dashboard-token",
        "traces",
        ".",
        "",
        "nothing",
        "x" * 5000,
        "a\0b",
    ],
)
def test_path_that_is_no_file_of_the_run_is_none(runs_dir: Path, path: str) -> None:
    assert file_in_run(runs_dir, "a", path.format(outside=runs_dir.parent)) is None


def test_links_are_followed_only_within_the_run(runs_dir: Path) -> None:
    run = runs_dir / "a"
    (run / "inside").symlink_to("traces/t.json")
    (run / "outside").symlink_to(runs_dir.parent / "dashboard-token")
    (run / "folder").symlink_to(runs_dir / "b")
    (run / "loop").symlink_to("loop")
    assert file_in_run(runs_dir, "a", "inside") is not None
    for path in ("outside", "folder/secret", "loop"):
        assert file_in_run(runs_dir, "a", path) is None


def test_pipe_is_not_a_file_of_the_run(runs_dir: Path) -> None:
    os.mkfifo(runs_dir / "a" / "pipe")
    assert file_in_run(runs_dir, "a", "pipe") is None
