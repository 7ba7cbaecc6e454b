"""What must hold after any schedule, read from what the run has written."""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from db.engine import create_engine_for
from elasticqa.checkpoint.manifest import checkpoint_directories, read_manifest
from elasticqa.run.journal_reader import newest_end_line
from tests.chaos.schedule import EVALUATE_EVERY, NUM_STEPS
from tests.support.rows import every_row, rebuilt

_NUM_FEATURES, _STEPS_PER_EPOCH = 53, 8


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        lineage: step -> attempt whose update of that step is in the final weights.
        losses: of the steps on the lineage.
        fed: step -> ids that the ranks of its attempt took from their tensors, sorted.
        world_sizes: of all attempts.
        final_loss: as the last line says.
        evaluations: step -> (EM, F1) of each time that it was evaluated.
    """

    lineage: dict[int, int]
    losses: dict[int, float]
    fed: dict[int, list[int]]
    world_sizes: dict[int, int]
    final_loss: float
    evaluations: dict[int, list[tuple[float, float]]]

    @classmethod
    def of(cls, directory: Path, num_steps: int = NUM_STEPS) -> "Run":
        """Return what the directory of a run of so many steps says.

        Raises:
            AssertionError: the run is not finished, or its record has a hole.
        """
        end = newest_end_line(directory)
        assert end is not None, f"{directory} has no end"
        assert (end["status"], end["step"]) == ("finished", num_steps)
        journals = {number: journal_of(directory, number) for number in _attempts(directory)}
        lineage = lineage_of(journals, num_steps)
        steps = {number: {line["step"]: line["loss"] for line in lines["step"]} for number, lines in journals.items()}
        fed = {number: _fed(directory, number) for number in set(lineage.values())}
        evaluations = _evaluations(journals.values())
        owed = {*range(EVALUATE_EVERY, num_steps, EVALUATE_EVERY), num_steps} - evaluations.keys()
        assert not owed, f"steps {sorted(owed)} were not evaluated"
        return cls(
            lineage=lineage,
            losses={step: steps[attempt][step] for step, attempt in lineage.items()},
            fed={step: sorted(fed[attempt][step]) for step, attempt in lineage.items()},
            world_sizes={number: lines["attempt"][0]["world_size"] for number, lines in journals.items()},
            final_loss=end["final_loss"],
            evaluations=evaluations,
        )


def _evaluations(journals: Iterable[dict[str, list[dict[str, Any]]]]) -> dict[int, list[tuple[float, float]]]:
    result: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for lines in journals:
        for line in lines["evaluation"]:
            result[line["step"]].append((line["em"], line["f1"]))
    return result


def _attempts(directory: Path) -> list[int]:
    """Return the attempts that have written, in order; one that died before its first line has not."""
    paths = sorted(directory.glob("journal/attempt-*-node-00000.jsonl"))
    return [int(path.name.split("-")[1]) for path in paths if b"\n" in path.read_bytes()]


def _whole_lines(path: Path) -> list[dict[str, Any]]:
    content = path.read_bytes()
    return [json.loads(line) for line in content[: content.rfind(b"\n") + 1].splitlines()]


def journal_of(directory: Path, attempt: int) -> dict[str, list[dict[str, Any]]]:
    """Return the whole lines of an attempt's journal on node 0, by kind; their numbers have no gap."""
    result: dict[str, list[dict[str, Any]]] = defaultdict(list)
    path = directory / "journal" / f"attempt-{attempt:04d}-node-00000.jsonl"
    lines = [line.rstrip(b"\n") for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    for number, raw in enumerate(lines, start=1):
        line = _parsed(raw)
        if line is None:
            # What a full disk or a kill tore was promised to nobody; whoever then ends the attempt writes behind it.
            last = _parsed(lines[-1])
            is_torn = number == len(lines) - 1 and last is not None and last["kind"] == "end"
            assert is_torn, f"attempt {attempt} has a line {number} that is no JSON"
            continue
        assert line["n"] == number, f"attempt {attempt} has a gap"
        result[line["kind"]].append(line)
    return result


def _parsed(raw: bytes) -> dict[str, Any] | None:
    try:
        line: dict[str, Any] = json.loads(raw)
    except ValueError:
        return None
    return line


def _fed(directory: Path, attempt: int) -> dict[int, list[int]]:
    result: dict[int, list[int]] = defaultdict(list)
    for path in sorted(directory.glob(f"fed/attempt-{attempt:04d}-rank-*.jsonl")):
        for line in _whole_lines(path):
            result[line["step"]] += line["ids"]
    return result


def lineage_of(journals: dict[int, dict[str, list[dict[str, Any]]]], num_steps: int) -> dict[int, int]:
    """Return step -> attempt whose update of that step is in the weights after the last step.

    Walks back from the last attempt: what one began with was written by the newest one before that came so far.
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
        assert earlier or step == 0, f"attempt {attempt} began at step {step}, which nobody has recorded"
        attempt = max(earlier, default=0)
    return result


def check(home: Path, directory: Path, reference: Run, *, is_elastic: bool, scratch: Path) -> Run:
    """Hold a run that has been hit by faults against one that has not.

    Args:
        home: of its record, whose database has been kept up to date on the way.
        directory: of the run.
        reference: the same run, uninterrupted; of whole epochs.
        is_elastic: the world size changed, so sums were made in another order.
        scratch: where a second database is built.

    Raises:
        AssertionError: a promise is broken.
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
        # Again and again where the checkpoint that told of it was damaged, but always the same.
        assert {step: set(found) for step, found in run.evaluations.items()} == {
            step: set(found) for step, found in reference.evaluations.items()
        }
    newest = checkpoint_directories(directory / "checkpoints")[0]
    assert read_manifest(newest, verify=True).step == num_steps
    check_database(home, scratch)
    return run


def check_database(home: Path, scratch: Path) -> None:
    """Hold the database that followed the run against one that is built from the journals alone."""
    engine = create_engine_for(f"sqlite:///{home / 'elasticqa.db'}")
    try:
        followed = every_row(engine)
    finally:
        engine.dispose()
    scratch.mkdir(exist_ok=True)
    assert followed == rebuilt(home / "runs", scratch)
