"""Tests of the checks: each defect that a schedule could cause is found in a journal that has it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.check import Run, lineage_of
from tests.chaos.schedule import EVALUATE_EVERY, NUM_STEPS

Lines = list[dict[str, Any]]


def write_lines(path: Path, lines: Lines) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))


def journal(attempt: int, start: int, stop: int, *, is_last: bool) -> Lines:
    kinds: Lines = [{"kind": "attempt", "attempt": attempt, "world_size": 1}, {"kind": "setup", "start_step": start}]
    for step in range(start + 1, stop + 1):
        kinds.append({"kind": "step", "step": step, "loss": step / 8})
        if step % EVALUATE_EVERY == 0 or step == NUM_STEPS:
            kinds.append({"kind": "evaluation", "step": step, "em": 0.0, "f1": step / 2})
    if is_last:
        kinds.append({"kind": "end", "status": "finished", "step": NUM_STEPS, "final_loss": 0.5})
    return [{"n": number, **fields} for number, fields in enumerate(kinds, start=1)]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run of two attempts: the first did 27 steps, the second began at the checkpoint of step 20."""
    for attempt, start, stop in ((1, 0, 27), (2, 20, NUM_STEPS)):
        name = f"attempt-{attempt:04d}"
        write_lines(tmp_path / f"journal/{name}-node-00000.jsonl", journal(attempt, start, stop, is_last=attempt == 2))
        write_lines(
            tmp_path / f"fed/{name}-rank-00000.jsonl",
            [{"step": step, "ids": [step, 100 * attempt]} for step in range(start + 1, stop + 1)],
        )
    return tmp_path


def test_each_step_counts_in_the_attempt_whose_update_was_kept(run: Path) -> None:
    read = Run.of(run)
    assert [read.lineage[step] for step in (1, 20, 21, 27, NUM_STEPS)] == [1, 1, 2, 2, 2]
    assert read.fed[20] == [20, 100]
    assert read.fed[21] == [21, 200]
    assert (read.losses[21], read.final_loss) == (21 / 8, 0.5)


def test_evaluations_of_all_attempts_count_and_none_may_be_missing(run: Path) -> None:
    assert Run.of(run).evaluations[30] == [(0.0, 15.0)]
    path = run / "journal/attempt-0002-node-00000.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    kept = [line for line in lines if line["kind"] != "evaluation" or line["step"] not in {30, NUM_STEPS}]
    write_lines(path, [{**line, "n": number} for number, line in enumerate(kept, start=1)])
    with pytest.raises(AssertionError, match=r"steps \[30, 96\] were not evaluated"):
        Run.of(run)


def test_attempt_without_a_kept_checkpoint_is_no_part_of_the_lineage() -> None:
    journals = {
        number: {"setup": [{"start_step": start}], "step": [{"step": step} for step in range(start + 1, stop + 1)]}
        for number, (start, stop) in {1: (0, 12), 2: (10, 15), 3: (10, 24), 4: (20, 30)}.items()
    }
    lineage = lineage_of(journals, 30)
    assert [lineage[step] for step in (10, 11, 15, 20, 21, 30)] == [1, 3, 3, 3, 4, 4]


def without(path: str, found: Callable[[dict[str, Any]], bool]) -> Callable[[Path], None]:
    def remove(run: Path) -> None:
        lines = [json.loads(line) for line in (run / path).read_text().splitlines()]
        assert any(map(found, lines))
        write_lines(run / path, [line for line in lines if not found(line)])

    return remove


def tear(path: str, number: int) -> Callable[[Path], None]:
    def cut(run: Path) -> None:
        lines = (run / path).read_text().splitlines(keepends=True)
        lines[number - 1] = lines[number - 1][:12] + "\n"
        (run / path).write_text("".join(lines))

    return cut


def test_torn_line_before_an_end_of_another_process_is_allowed(run: Path) -> None:
    path = run / "journal/attempt-0001-node-00000.jsonl"
    end = {"n": 32, "kind": "end", "status": "failed"}
    path.write_text(f'{path.read_text()}{{"n":31,"ki\n{json.dumps(end)}\n')
    assert Run.of(run).lineage[20] == 1


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (tear("journal/attempt-0001-node-00000.jsonl", 7), "a line 7 that is no JSON"),
        (without("journal/attempt-0002-node-00000.jsonl", lambda line: line["kind"] == "end"), "has no end"),
        (without("journal/attempt-0001-node-00000.jsonl", lambda line: line.get("step") == 14), "has a gap"),
        (
            without("journal/attempt-0001-node-00000.jsonl", lambda line: line.get("step", 0) > 18),
            "no attempt has recorded",
        ),
    ],
)
def test_journal_with_a_gap_is_refused(harm: Callable[[Path], None], message: str, run: Path) -> None:
    harm(run)
    with pytest.raises(AssertionError, match=message):
        Run.of(run)


def test_step_that_was_fed_twice_shows_in_the_fed_features(run: Path) -> None:
    before = Run.of(run).fed
    path = run / "fed/attempt-0002-rank-00001.jsonl"
    write_lines(path, [{"step": 40, "ids": [40]}])
    assert Run.of(run).fed[40] == [40, 40, 200] != before[40]
