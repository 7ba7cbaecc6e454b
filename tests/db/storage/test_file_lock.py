"""Locks that only one holder has at a time."""

import errno
import fcntl
from pathlib import Path

import pytest

from db.storage.file_lock import locked, try_lock


def test_held_lock_is_not_given_twice(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with try_lock(path) as is_mine, try_lock(path) as is_mine_too:
        assert (is_mine, is_mine_too) == (True, False)
    with locked(path), try_lock(path) as is_mine:
        assert not is_mine
    with try_lock(path) as is_mine:
        assert is_mine


def test_file_system_without_locks_counts_as_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with try_lock(tmp_path / "a.lock") as is_mine:
        assert is_mine
