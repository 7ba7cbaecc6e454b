"""A checkpoint is whole or absent, loads at every world size, and is written while training continues."""

import threading
from pathlib import Path

import pytest

from elasticqa.checkpoint.checkpointer import Checkpointer
from elasticqa.checkpoint.manifest import read_manifest
from elasticqa.checkpoint.retention import noted_best
from elasticqa.config.train_config import Parallel
from elasticqa.distributed.topology import Topology
from elasticqa.errors import JournalError
from elasticqa.training.app_state import app_state_of
from tests.support.checkpoints import ALONE, LineList, flip, names, newest_step, save, save_some
from tests.support.ranks import run_on_ranks
from tests.support.train_steps import losses, new_train_step


def resume_newest(topology: Topology, directory: Path, parallel: Parallel, steps: range) -> tuple[int, list[float]]:
    """Restore the newest checkpoint into a fresh train step and return its step and the losses from there."""
    restored = new_train_step(topology, parallel)
    restored.prime(steps.start)
    checkpointer = Checkpointer(directory, topology, app_state_of(restored), keep=2)
    found = checkpointer.newest_whole()
    assert found is not None
    path, manifest = found
    checkpointer.restore(path, manifest)
    return manifest.step, losses(restored, steps)


@pytest.fixture(scope="module")
def uninterrupted() -> list[float]:
    """Return the losses of six steps in one process."""
    return losses(new_train_step(ALONE, "none"), range(6))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return directories with a checkpoint after three steps, by who saved it."""
    folder = tmp_path_factory.mktemp("saved")
    save(ALONE, folder / "none-1", "none", 3)
    run_on_ranks(2, save, folder / "ddp-2", "ddp", 3)
    run_on_ranks(3, save, folder / "fsdp-3", "fsdp", 3)
    return {path.name: path for path in folder.iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize("source", ["none-1", "ddp-2", "fsdp-3"])
@pytest.mark.parametrize(("parallel", "world_size"), [("none", 1), ("ddp", 3), ("fsdp", 2)])
def test_training_resumes_at_another_world_size_and_strategy(
    source: str, parallel: Parallel, world_size: int, saved: dict[str, Path], uninterrupted: list[float]
) -> None:
    for step, after in run_on_ranks(world_size, resume_newest, saved[source], parallel, range(3, 6)):
        assert step == 3
        assert after == pytest.approx(uninterrupted[3:], abs=1e-5)
    assert uninterrupted[3:] != pytest.approx(uninterrupted[:3], abs=1e-2)


def test_unfinished_checkpoint_is_ignored_and_replaced_by_the_next(tmp_path: Path) -> None:
    assert newest_step(Checkpointer(tmp_path / "absent", ALONE, {}, keep=2)) is None
    checkpointer = save_some(tmp_path, 1)
    (tmp_path / "step-00000001").rename(tmp_path / ".step-00000001.partial")
    (tmp_path / ".step-00000001.partial" / "old").write_text("x", encoding="utf-8")
    assert newest_step(checkpointer) is None
    save_some(tmp_path, 1)
    assert names(tmp_path) == ["step-00000001"]
    assert not (tmp_path / "step-00000001" / "old").exists()


def test_newest_are_kept(tmp_path: Path) -> None:
    save_some(tmp_path, 1, 2, 30, 4, keep=2)
    assert names(tmp_path) == ["step-00000002", "step-00000004"]  # 30 is no ancestor of 4


def test_step_saved_again_replaces_the_first(tmp_path: Path) -> None:
    checkpointer = save_some(tmp_path, 7)
    flip(tmp_path / "step-00000007" / "__0_0.distcp")
    save_some(tmp_path, 7)
    assert newest_step(checkpointer) == 7
    assert names(tmp_path) == ["step-00000007"]


def test_interrupted_replacement_keeps_the_first(tmp_path: Path) -> None:
    checkpointer = save_some(tmp_path, 7)
    (tmp_path / "step-00000007").rename(tmp_path / ".step-00000007.replaced")
    assert newest_step(checkpointer) == 7
    assert names(tmp_path) == ["step-00000007"]


def test_best_is_never_pruned_until_a_better_one_comes(tmp_path: Path) -> None:
    checkpointer = save_some(tmp_path, 1, keep=1)
    assert noted_best(tmp_path) is None
    first = tmp_path / "step-00000001"
    assert checkpointer.keep_best(1, 70.0)
    save_some(tmp_path, 2, 3, keep=1)
    assert not checkpointer.keep_best(3, 69.9)
    assert not checkpointer.keep_best(3, 70.0)
    assert not checkpointer.keep_best(8, 99.0)  # of which there is no checkpoint
    assert names(tmp_path) == ["best.json", "step-00000001", "step-00000003"]
    assert noted_best(tmp_path) == (first, 70.0)
    assert checkpointer.keep_best(3, 71.0)
    save_some(tmp_path, 4, keep=1)
    assert names(tmp_path) == ["best.json", "step-00000003", "step-00000004"]


def test_evaluation_is_added_to_its_checkpoint_once_the_journal_is_durable(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpointer = save_some(tmp_path, 1)
    path = tmp_path / "step-00000001"
    before = read_manifest(path, verify=True)
    checkpointer.amend(1, {"best_f1": 70.0})
    manifest = read_manifest(path, verify=True)
    assert manifest.progress == {**before.progress, "best_f1": 70.0}
    assert (manifest.files, manifest.saved_at) == (before.files, before.saved_at)
    checkpointer.amend(8, {"best_f1": 99.0})  # of which there is no checkpoint

    class FullDisk(LineList):
        def flush(self) -> None:
            raise JournalError("the disk is full")

    Checkpointer(tmp_path, ALONE, {}, keep=9, record=FullDisk()).amend(1, {"best_f1": 80.0})
    assert f"cannot be added to checkpoint {path}: the disk is full" in caplog.text
    assert read_manifest(path, verify=True) == manifest


@pytest.mark.parametrize("content", ["", "[]", '{"directory": "../..", "f1": 99}', '{"directory": "step-00000001"}'])
def test_note_of_the_best_that_cannot_be_trusted_is_replaced(content: str, tmp_path: Path) -> None:
    checkpointer = save_some(tmp_path, 1)
    (tmp_path / "best.json").write_text(content, encoding="utf-8")
    assert noted_best(tmp_path) is None
    assert checkpointer.keep_best(1, 1.0)
    assert noted_best(tmp_path) == (tmp_path / "step-00000001", 1.0)


def steps_during_a_save(topology: Topology, directory: Path, parallel: Parallel) -> tuple[bool, list[float]]:
    """Run three steps, start a save, run three more before it may write, then let it write."""
    trained, may_write = new_train_step(topology, parallel), threading.Event()

    class Waiting(LineList):
        def flush(self) -> None:
            may_write.wait(60)

    checkpointer = Checkpointer(directory, topology, app_state_of(trained), keep=2, record=Waiting())
    trained.prime(0)
    first = losses(trained, range(3))
    checkpointer.prepare()
    checkpointer.start(3, "interval")
    after = losses(trained, range(3, 6))
    is_early = bool(list(directory.glob("step-*")))
    may_write.set()
    checkpointer.finish()
    checkpointer.close()
    return is_early, [*first, *after]


@pytest.mark.slow
@pytest.mark.parametrize(("parallel", "world_size"), [("none", 1), ("ddp", 2), ("ddp", 3), ("fsdp", 2), ("fsdp", 3)])
def test_steps_during_a_save_are_not_in_it_and_are_repeated_bit_for_bit(
    parallel: Parallel, world_size: int, tmp_path: Path
) -> None:
    whole = run_on_ranks(world_size, steps_during_a_save, tmp_path, parallel)
    for (is_early, expected), (step, after) in zip(
        whole, run_on_ranks(world_size, resume_newest, tmp_path, parallel, range(3, 6)), strict=True
    ):
        assert not is_early
        assert step == 3
        assert after == expected[3:]


def test_commit_is_recorded_with_its_times(tmp_path: Path) -> None:
    record = LineList()
    checkpointer = Checkpointer(tmp_path, ALONE, app_state_of(new_train_step(ALONE, "none")), keep=2, record=record)
    checkpointer.start(1, "interval")
    checkpointer.finish()
    ((kind, fields),) = record.lines
    assert (kind, fields["path"], fields["reason"]) == ("checkpoint", f"{tmp_path.name}/step-00000001", "interval")
    assert 0 < fields["blocked_time_s"] <= fields["save_time_s"]
