"""Pages of a predictions file."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from db.queries import read_predictions
from db.queries.predictions import MAX_LINE_BYTES
from tests.support.dashboard_lab import ANSWERS


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "dev.jsonl"
    path.write_text("".join(json.dumps(answer) + "\n" for answer in ANSWERS), encoding="utf-8")
    return path


def changed(**fields: Any) -> str:
    return json.dumps({**ANSWERS[0], **fields})


def test_page_has_its_rows_and_all_counts(file: Path) -> None:
    page = read_predictions(file, limit=4, offset=8)
    assert [row.number for row in page.rows] == [9, 10, 11, 12]
    assert (page.num_matching, page.num_right, page.num_all, page.num_damaged) == (27, 9, 27, 0)
    assert page.rows[1].answers == ("4 March 1890",)
    first = page.rows[1]
    assert first.start is not None
    assert first.context[first.start :].startswith(first.prediction)


def test_filter_selects_right_or_wrong_answers(file: Path) -> None:
    wrong = read_predictions(file, answer_filter="wrong", limit=100)
    right = read_predictions(file, answer_filter="right", limit=100)
    assert (len(wrong.rows), wrong.num_matching, wrong.num_right) == (18, 18, 9)
    assert {row.is_right for row in right.rows} == {True}
    assert {row.f1 for row in wrong.rows} == {0.55, 0.0}
    assert sorted(row.number for row in wrong.rows + right.rows) == list(range(1, 28))


@pytest.mark.parametrize(
    ("text", "count"), [("WHO OPENED", 9), ("1882", 9), ("q26", 1), ("cantilever", 0), ("<nothing>", 0)]
)
def test_text_filter_searches_question_answers_and_id(file: Path, text: str, count: int) -> None:
    assert read_predictions(file, text=text).num_matching == count


def test_pages_past_the_end_are_empty(file: Path) -> None:
    page = read_predictions(file, offset=1000)
    assert page.rows == ()
    assert page.num_matching == 27


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "[]",
        '{"id": "x"}',
        changed(f1=2),
        changed(em="1"),
        changed(f1=True),
        changed(start=-1),
        changed(start="3"),
        changed(answers=[1]),
        changed(question=None),
        changed(question="\ud800"),
        changed(f1=float("nan")),
        changed(score=float("inf")),
        "[" * 100_000,
        '{"em": ' + "9" * 5000 + "}",
        "\udcff",
        '"' + "x" * (MAX_LINE_BYTES + 10) + '"',
    ],
)
def test_damaged_line_is_counted_and_skipped(file: Path, line: str) -> None:
    with file.open("ab") as stream:
        stream.write(line.encode("utf-8", "surrogateescape") + b"\n" + changed(id="last").encode() + b"\n")
    page = read_predictions(file, limit=100)
    assert page.num_damaged == 1
    assert (page.num_all, page.rows[-1].id) == (28, "last")


@pytest.mark.parametrize("start", [None, 3, 10_000])
def test_start_of_another_text_is_not_marked(file: Path, start: int | None) -> None:
    file.write_text(changed(start=start) + "\n", encoding="utf-8")
    (row,) = read_predictions(file).rows
    assert row.start is None


def test_memory_is_bounded_by_a_page(file: Path) -> None:
    with file.open("w", encoding="utf-8") as stream:
        for number in range(3000):
            stream.write(changed(id=str(number), context="x" * 5000) + "\n")
    tracemalloc.start()
    read_predictions(file, limit=10, offset=20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < file.stat().st_size / 10
