"""Checks of a run after any schedule, read from its files."""

import itertools
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from db.engine import create_engine_for
from elasticqa.checkpoint.manifest import checkpoint_directories, read_manifest
from elasticqa.run.journal_reader import newest_end_line
from tests.chaos.schedule import EVALUATE_EVERY, NUM_STEPS
from tests.support import training
from tests.support.rows import every_row, rebuilt

_NUM_FEATURES, _STEPS_PER_EPOCH = 53, 8


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        lineage: step -> attempt whose update of that step is in the final weights.
        losses: of the steps on the lineage.
        fed: step -> feature ids that the ranks of its attempt fed, sorted.
        world_sizes: of all attempts.
        final_loss: in the last line.
        evaluations: step -> (EM, F1) of each evaluation.
    """

    lineage: dict[int, int]
    losses: dict[int, float]
    fed: dict[int, list[int]]
    world_sizes: dict[int, int]
    final_loss: float
    evaluations: dict[int, list[tuple[float, float]]]

    @classmethod
    def of(cls, directory: Path, num_steps: int = NUM_STEPS) -> "Run":
        """Read the directory of a run.

        Raises:
            AssertionError: the run is not finished after so many steps, or its journal has a gap.
        """
        end = newest_end_line(directory)
        assert end is not None, f"{directory} has no end"
        assert (end["status"], end["step"]) == ("finished", num_steps)
        journals = {number: training.journal(directory, number) for number in _attempts(directory)}
        lineage = lineage_of(journals, num_steps)
        steps = {number: {line["step"]: line["loss"] for line in lines["step"]} for number, lines in journals.items()}
        fed = {number: training.fed(directory, number) for number in set(lineage.values())}
        evaluations: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for line in itertools.chain.from_iterable(lines["evaluation"] for lines in journals.values()):
            evaluations[line["step"]].append((line["em"], line["f1"]))
        owed = {*range(EVALUATE_EVERY, num_steps, EVALUATE_EVERY), num_steps} - evaluations.keys()
        assert not owed, f"steps {sorted(owed)} were not evaluated"
        return cls(
            lineage=lineage,
            losses={step: steps[attempt][step] for step, attempt in lineage.items()},
            fed={step: fed[attempt][step] for step, attempt in lineage.items()},
            world_sizes={number: lines["attempt"][0]["world_size"] for number, lines in journals.items()},
            final_loss=end["final_loss"],
            evaluations=evaluations,
        )


def _attempts(directory: Path) -> list[int]:
    """Return the attempts with a journal line, in order; an attempt may die before its first line."""
    paths = sorted(directory.glob("journal/attempt-*-node-00000.jsonl"))
    return [int(path.name.split("-")[1]) for path in paths if b"\n" in path.read_bytes()]


def lineage_of(journals: dict[int, dict[str, list[dict[str, Any]]]], num_steps: int) -> dict[int, int]:
    """Return step -> attempt whose update of that step is in the weights after the last step.

    Walks back from the last attempt: each began with the checkpoint of the newest earlier attempt that got so far.
    """
    starts = {number: lines["setup"][0]["start_step"] for number, lines in journals.items() if lines["setup"]}
    reached = {number: max((line["step"] for line in journals[number]["step"]), default=0) for number in starts}
    result: dict[int, int] = {}
    step, attempt = num_steps, max(starts)
    while step > 0:
        start = starts[attempt]
        result.update(dict.fromkeys(range(start + 1, step + 1), attempt))
        step = start
        earlier = [number for number in starts if number < attempt and starts[number] < step <= reached[number]]
        assert earlier or step == 0, f"attempt {attempt} began at step {step}, which no attempt has recorded"
        attempt = max(earlier, default=0)
    return result


def check(home: Path, directory: Path, reference: Run, *, is_elastic: bool, scratch: Path) -> Run:
    """Compare a run under faults with an uninterrupted one.

    Args:
        home: home directory of the record, whose database was updated during the run.
        directory: of the run.
        reference: the same run, uninterrupted; of whole epochs.
        is_elastic: the world size may have changed, so sums have another order.
        scratch: directory for a second database.

    Raises:
        AssertionError: the runs differ.
    """
    num_steps = len(reference.lineage)
    run = Run.of(directory, num_steps)
    assert sorted(run.lineage) == list(range(1, num_steps + 1))
    assert run.fed == reference.fed
    for epoch in range(num_steps // _STEPS_PER_EPOCH):
        steps = range(epoch * _STEPS_PER_EPOCH + 1, (epoch + 1) * _STEPS_PER_EPOCH + 1)
        assert sorted(feature for step in steps for feature in run.fed[step]) == list(range(_NUM_FEATURES))
    if is_elastic:
        assert run.losses == pytest.approx(reference.losses, abs=1e-4)
        assert run.final_loss == pytest.approx(reference.final_loss, abs=1e-4)
    else:
        assert set(run.world_sizes.values()) == set(reference.world_sizes.values())
        assert run.losses == reference.losses
        assert run.final_loss == reference.final_loss
        # Evaluated again if a checkpoint was damaged, always with the same result.
        assert {step: set(found) for step, found in run.evaluations.items()} == {
            step: set(found) for step, found in reference.evaluations.items()
        }
    newest = checkpoint_directories(directory / "checkpoints")[0]
    assert read_manifest(newest, verify=True).step == num_steps
    check_database(home, scratch)
    return run


def check_database(home: Path, scratch: Path) -> None:
    """Compare the database that followed the run with one that is built from the journals alone."""
    engine = create_engine_for(f"sqlite:///{home / 'elasticqa.db'}")
    try:
        followed = every_row(engine)
    finally:
        engine.dispose()
    scratch.mkdir(exist_ok=True)
    assert followed == rebuilt(home / "runs", scratch)
