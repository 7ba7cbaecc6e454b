"""Saves that fail: on every rank, with the reason, and with nothing left of them."""

import contextlib
import errno
import io
import os
import resource
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.checkpoint.filesystem import FileSystem

from elasticqa.checkpoint.checkpointer import Checkpointer
from elasticqa.distributed.topology import Topology
from elasticqa.errors import CheckpointError, RunRemovedError
from elasticqa.training.app_state import app_state_of
from tests.support.checkpoints import ALONE, names, newest_step, save, save_some
from tests.support.processes import piped
from tests.support.ranks import run_on_ranks
from tests.support.train_steps import losses, new_train_step


class FullDisk(io.FileIO):
    """A file on a disk with room for so many bytes."""

    def __init__(self, path: Path, room: int) -> None:
        super().__init__(path, "wb")
        self._room = room

    def write(self, data: Any) -> int:
        fitting = memoryview(data).cast("B")[: self._room]
        if not fitting:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._room -= len(fitting)
        return super().write(fitting)

    def make_room(self) -> None:
        self._room = 1 << 30


@pytest.mark.parametrize("room", [0, 9000, 33000, 40000, 50000])
def test_full_disk_is_called_so_wherever_it_fills(room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def stream(_: FileSystem, path: Path, __: str) -> Iterator[io.BufferedIOBase]:
        raw = FullDisk(path, room)
        with io.BufferedWriter(raw) as file:
            try:
                yield file
            finally:
                raw.make_room()

    monkeypatch.setattr(FileSystem, "create_stream", stream)
    with pytest.raises(CheckpointError, match=os.strerror(errno.ENOSPC)):
        save_some(tmp_path, 1)
    assert names(tmp_path) == []


def save_beyond_the_limit(topology: Topology, directory: Path, limit: int) -> tuple[str, list[str]]:
    """Save twice, the second time with too little room for a file, and return what was raised and what is there."""
    save(topology, directory, "fsdp", 1)
    if topology.rank == topology.world_size - 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    try:
        save(topology, directory, "fsdp", 2)
    except CheckpointError as error:
        problem = str(error)
    else:
        problem = "saved"
    topology.barrier()
    return problem, names(directory)


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("limit", [0, 20_000])
def test_save_without_room_fails_on_every_rank_and_leaves_nothing(world_size: int, limit: int, tmp_path: Path) -> None:
    for problem, left in run_on_ranks(world_size, save_beyond_the_limit, tmp_path, limit):
        assert "could not be written" in problem
        assert "File too large" in problem
        assert "\n" not in problem
        assert left == ["step-00000001"]
    assert newest_step(Checkpointer(tmp_path, ALONE, {}, keep=2)) == 1


def save_into_a_file(topology: Topology, directory: Path) -> str:
    try:
        save(topology, directory, "ddp", 1)
    except CheckpointError as error:
        return str(error)
    return "saved"


@pytest.mark.slow
def test_directory_that_cannot_be_made_fails_on_every_rank(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    for problem in run_on_ranks(2, save_into_a_file, tmp_path / "file" / "checkpoints"):
        assert "could not be written" in problem
        assert "Not a directory" in problem


def fail_in_the_background(topology: Topology, directory: Path) -> tuple[str, str, list[str]]:
    """Return what the save after one without room raised, how the one after that ended, and what is there."""
    trained = new_train_step(topology, "ddp")
    checkpointer = Checkpointer(directory, topology, app_state_of(trained), keep=2)
    losses(trained, range(1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    outcomes = []
    for step in (1, 2, 3):
        try:
            checkpointer.start(step, "interval")
        except CheckpointError as error:
            outcomes.append(str(error))
        if step == 1:
            checkpointer.finish()
            if topology.rank == 1:
                resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    checkpointer.start(4, "interval")
    checkpointer.finish()
    return outcomes[0], str(len(outcomes)), names(directory)


@pytest.mark.slow
def test_failure_of_one_rank_in_the_background_is_raised_on_every_rank_by_the_next_save(tmp_path: Path) -> None:
    for problem, num_problems, left in run_on_ranks(2, fail_in_the_background, tmp_path):
        assert ".step-00000002.partial could not be written" in problem
        assert "File too large" in problem
        assert num_problems == "1"
        assert left == ["step-00000001", "step-00000004"]


DYING = """
import sys, threading
from pathlib import Path
from elasticqa.checkpoint.checkpointer import Checkpointer
from elasticqa.training.app_state import app_state_of
from tests.support.checkpoints import ALONE, LineList, save_some
from tests.support.train_steps import new_train_step
directory = Path(sys.argv[1])
save_some(directory, 1)
untrained = new_train_step(ALONE, "none")
class Waiting(LineList):
    def flush(self):
        print("saving", flush=True)
        threading.Event().wait()
checkpointer = Checkpointer(directory, ALONE, app_state_of(untrained), keep=2, record=Waiting())
checkpointer.start(2, "interval")
checkpointer.finish()
"""


@pytest.mark.slow
def test_kill_in_the_middle_of_a_save_leaves_the_older_one(tmp_path: Path) -> None:
    with piped(sys.executable, "-c", DYING, tmp_path) as (process, output):
        assert output.readline() == "saving\n"
        assert names(tmp_path) == [".step-00000002.partial", "step-00000001"]
        process.kill()
    assert newest_step(Checkpointer(tmp_path, ALONE, {}, keep=2)) == 1
    save_some(tmp_path, 2)
    assert names(tmp_path) == ["step-00000001", "step-00000002"]


def test_run_directory_that_is_gone_does_not_come_back_in_part(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    save_some(run / "checkpoints", 1)
    shutil.rmtree(run)
    with pytest.raises(RunRemovedError, match=r"run directory .* is gone"):
        save_some(run / "checkpoints", 2)
    assert not run.exists()
