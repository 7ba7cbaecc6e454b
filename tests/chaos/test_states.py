"""Thousands of schedules without processes: the functions that decide what a run does next, on real files.

A simulated run computes nothing: its weights are a digest of all fed features, in order. Sampler, journal, claims,
manifest, retention and the choice of the run are the real ones.
"""

import functools
import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from elasticqa.checkpoint.manifest import (
    MANIFEST,
    Manifest,
    checkpoint_directories,
    directory_name,
    read_manifest,
    write_manifest,
)
from elasticqa.checkpoint.retention import note_best, noted_best, prune, put_back_replaced, put_in_place
from elasticqa.config.batch_plan import batch_plan
from elasticqa.config.environment import RUN_ID_VARIABLE
from elasticqa.config.train_config import TrainConfig
from elasticqa.data.sampler import Sampler
from elasticqa.errors import CheckpointError, ConfigError
from elasticqa.run.journal import Journal, claim_attempt
from elasticqa.run.journal_reader import is_finished
from elasticqa.training.resume import choose_run
from tests.chaos.check import lineage_of
from tests.support.training import journal

NUM_SCHEDULES = 2000
LENGTHS = np.array([12, 3, 40, 7, 22, 31, 5, 9, 18, 2, 27])
CONFIG = TrainConfig(global_batch_size=4, micro_batch_size=2, epochs=4, keep_checkpoints=2)
PLAN = batch_plan(CONFIG, len(LENGTHS), 1)
CHECKPOINT_EVERY = 2
ENVIRON = {RUN_ID_VARIABLE: "simulated"}


@functools.cache
def fed_by_all(step: int, world_size: int) -> list[int]:
    """Return the features that all ranks feed in a step, counted from 0; each rank plans its own share."""
    fed: list[int] = []
    for rank in range(world_size):
        sampler = Sampler(PLAN, LENGTHS, seed=1, rank=rank, world_size=world_size, micro_batch_size=2)
        fed += [int(index) for part in sampler.step_batch(step).micro_batches for index in part]
    return sorted(fed)


def updated(weights: str, fed: list[int]) -> str:
    """Return the weights after a step."""
    return hashlib.sha256(f"{weights}{fed}".encode()).hexdigest()


def uninterrupted() -> list[str]:
    """Return the weights before the first step and after each, in one uninterrupted process."""
    weights = [""]
    for step in range(PLAN.num_steps):
        weights.append(updated(weights[-1], fed_by_all(step, 1)))
    return weights


EXPECTED = uninterrupted()


class Runs(RuleBasedStateMachine):
    """One run under any order of starts, steps, kills, damage and stops."""

    def __init__(self) -> None:
        super().__init__()
        # In memory if possible: only the order of the writes matters.
        memory = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(prefix="states-", dir=memory if os.access(memory, os.W_OK) else None))
        self.directory = self.folder / "simulated"
        self.checkpoints = self.directory / "checkpoints"
        self.journal: Journal | None = None
        self.step, self.weights = 0, ""
        self.acknowledged: dict[Path, bytes] = {}

    @property
    def is_running(self) -> bool:
        """Whether an attempt runs."""
        return self.journal is not None

    @initialize(world_size=st.integers(1, 4))
    def begin(self, world_size: int) -> None:
        """Start the run for the first time."""
        assert choose_run(CONFIG, self.folder, ENVIRON).is_new
        self._start(world_size)

    @precondition(lambda self: not self.is_running and not is_finished(self.directory))
    @rule(world_size=st.integers(1, 4))
    def start(self, world_size: int) -> None:
        """Start again, at any world size."""
        choice = choose_run(CONFIG, self.folder, ENVIRON)
        assert (choice.directory, choice.is_new) == (self.directory, False)
        self._start(world_size)

    def _start(self, world_size: int) -> None:
        self.world_size = world_size
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        number = claim_attempt(self.directory)
        self.journal = Journal(self.directory, number, 0)
        line = {"attempt": number, "provenance": "measured", "config": CONFIG.to_dict(), "world_size": world_size}
        self.journal.write("attempt", line)
        self._acknowledge()
        self.step, self.weights = 0, ""
        put_back_replaced(self.checkpoints)
        for path in checkpoint_directories(self.checkpoints):
            try:
                self.step = read_manifest(path, verify=True).step
            except CheckpointError:
                continue
            self.weights = (path / "weights").read_text()
            break
        assert self.weights == EXPECTED[self.step]
        self.journal.write("setup", {"start_step": self.step})

    @precondition(lambda self: self.is_running)
    @rule(count=st.integers(1, 5))
    def train(self, count: int) -> None:
        """Do some steps and the checkpoints that are due."""
        assert self.journal is not None
        for _ in range(min(count, PLAN.num_steps - self.step)):
            fed = fed_by_all(self.step, self.world_size)
            self.weights = updated(self.weights, fed)
            self.step += 1
            self.journal.write("step", {"step": self.step, "loss": 0.0, "fed": fed, "weights": self.weights})
            if self.step % CHECKPOINT_EVERY == 0:
                self._save()
        if self.step == PLAN.num_steps:
            self._save()
            self._end("finished")

    def _save(self, last_phase: int = 3) -> None:
        """Save as the trainer does, up to a phase: files, manifest, name, retention."""
        self._acknowledge()
        final = self.checkpoints / directory_name(self.step)
        temporary = final.with_name(f".{final.name}.partial")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        (temporary / "weights").write_text(self.weights)
        if last_phase >= 1:
            write_manifest(temporary, Manifest(self.step, {}, CONFIG.to_dict()))
        if last_phase >= 2:
            put_in_place(temporary, final)
        if last_phase >= 3:
            prune(self.checkpoints, self.step, CONFIG.keep_checkpoints)

    def _acknowledge(self) -> None:
        assert self.journal is not None
        self.journal.flush()
        content = self.journal.path.read_bytes()
        self.acknowledged[self.journal.path] = content

    @precondition(lambda self: self.is_running)
    @rule(kept=st.floats(0, 1), phase=st.none() | st.integers(0, 3))
    def kill(self, kept: float, phase: int | None) -> None:
        """Die, in a save or elsewhere: a part of the unacknowledged lines stays, perhaps torn."""
        assert self.journal is not None
        if phase is not None:
            self._save(phase)
        path = self.journal.path
        self.journal.close()
        self.journal = None
        durable, written = len(self.acknowledged[path]), path.stat().st_size
        os.truncate(path, durable + round(kept * (written - durable)))

    @precondition(lambda self: self.is_running)
    @rule()
    def stop(self) -> None:
        """End because of a signal."""
        self._save()
        self._end("preempted")

    def _end(self, status: str) -> None:
        assert self.journal is not None
        self.journal.write("end", {"status": status, "step": self.step})
        self._acknowledge()
        self.journal.close()
        self.journal = None

    @precondition(lambda self: self.is_running and self.step > 0)
    @rule(f1=st.floats(0, 100))
    def evaluate(self, f1: float) -> None:
        """Note the F1 of a checkpoint: the best one is kept."""
        before = noted_best(self.checkpoints)
        if note_best(self.checkpoints, self.step, f1):
            assert before is None or f1 > before[1]

    @precondition(lambda self: not is_finished(self.directory))
    @rule(how=st.sampled_from(["cut", "flip", "no manifest", "no weights", "cut manifest"]))
    def damage(self, how: str) -> None:
        """Damage the newest checkpoint."""
        found = checkpoint_directories(self.checkpoints)
        if not found:
            return
        weights, manifest = found[0] / "weights", found[0] / MANIFEST
        target = manifest if "manifest" in how else weights
        if not target.exists():
            return
        if how.startswith("cut"):
            os.truncate(target, target.stat().st_size // 2)
        elif how == "flip":
            content = target.read_bytes()
            target.write_bytes(bytes([content[0] ^ 1, *content[1:]]) if content else b"")
        else:
            target.unlink()

    @precondition(lambda self: is_finished(self.directory))
    @rule()
    def ask_again(self) -> None:
        """A finished run is not resumed by its name."""
        with pytest.raises(ConfigError, match="is finished"):
            choose_run(TrainConfig(**{**CONFIG.to_dict(), "resume": "simulated"}), self.folder, {})

    @invariant()
    def acknowledged_lines_stay(self) -> None:
        """Acknowledged lines are in the journal."""
        for path, content in self.acknowledged.items():
            assert path.read_bytes().startswith(content)

    def teardown(self) -> None:
        """Let the run finish, and check all of it."""
        try:
            while not is_finished(self.directory):
                if not self.is_running:
                    self._start(2)
                self.train(PLAN.num_steps)
            self._check()
        finally:
            if self.journal is not None:
                self.journal.close()
            shutil.rmtree(self.folder)

    def _check(self) -> None:
        assert self.weights == EXPECTED[-1]
        numbers = [int(path.name.split("-")[1]) for path in sorted(self.directory.glob("journal/*.jsonl"))]
        assert numbers == list(range(1, len(numbers) + 1))
        journals = {number: journal(self.directory, number) for number in numbers}
        lines: dict[int, dict[int, dict[str, Any]]] = {
            number: {line["step"]: line for line in of_kind["step"]} for number, of_kind in journals.items()
        }
        lineage = lineage_of(journals, PLAN.num_steps)
        committed = {step: lines[attempt][step] for step, attempt in lineage.items()}
        assert {step: line["weights"] for step, line in committed.items()} == dict(enumerate(EXPECTED[1:], start=1))
        for epoch in range(CONFIG.epochs):
            steps = range(epoch * PLAN.steps_per_epoch + 1, (epoch + 1) * PLAN.steps_per_epoch + 1)
            assert sorted(index for step in steps for index in committed[step]["fed"]) == list(range(len(LENGTHS)))
        assert json.loads((self.checkpoints / directory_name(PLAN.num_steps) / MANIFEST).read_text())["step"] == 12


@pytest.mark.slow
def test_any_schedule_commits_each_feature_once_an_epoch_and_ends_with_the_same_weights() -> None:
    run_state_machine_as_test(
        Runs,
        settings=settings(
            max_examples=NUM_SCHEDULES,
            stateful_step_count=14,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
