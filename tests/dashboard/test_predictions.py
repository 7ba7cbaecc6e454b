"""The page of predictions."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from dashboard.routes.predictions import MAX_CONTEXT, passage
from db.queries import PredictionRow
from tests.support.dashboard_data import AttemptSpec, RunSpec, ulid, write_run
from tests.support.dashboard_homes import KILLED, MOST_BYTES, NOW, RUNNING, client_on, ingest_home
from tests.support.dashboard_lab import ANSWERS

ADDRESS = f"/runs/{KILLED}/predictions"
SPEC = RunSpec(ulid(1), (AttemptSpec(1, 100, NOW - 900),), num_steps=100, answers=ANSWERS)


def test_question_is_shown_with_span_gold_and_result(lab: TestClient) -> None:
    page = lab.get(ADDRESS).text
    assert "9 of 27 questions right" in page
    first, second = re.findall(r"<article.*?</article>", page, re.DOTALL)[:2]
    assert "When was the bridge opened?" in first
    assert "<mark>4 March 1890</mark> by the Prince" in first
    assert 'class="right"' in first
    assert 'class="wrong"' in second
    assert "F1 0.55" in second
    assert second.count("the Prince of Wales</span>") == 1


def test_answers_are_filtered_and_paged(lab: TestClient) -> None:
    first = lab.get(f"{ADDRESS}?filter=wrong").text
    assert "18 questions match" in first
    assert first.count("<article") == 10
    (following,) = re.findall(r'rel="next" href="([^"]+)"', first)
    second = lab.get(following.replace("&amp;", "&")).text
    assert second.count("<article") == 8
    assert 'class="right"' not in first + second
    assert lab.get(f"{ADDRESS}?text=1882").text.count("<article") == 9
    assert "No question matches" in lab.get(f"{ADDRESS}?page=99").text


def test_every_evaluation_with_predictions_is_linked_and_can_be_chosen(lab: TestClient) -> None:
    links = re.findall(rf'href="({ADDRESS}\?evaluation=[^"]+)"', lab.get(f"/runs/{KILLED}").text)
    assert len(links) == 4
    pages = [lab.get(link).text for link in links]
    assert [re.findall(r"dev, step (\d+), attempt", page) for page in pages] == [["200"], ["150"], ["100"], ["50"]]
    assert all(page.count("<article") == 10 for page in pages)


@pytest.mark.parametrize(
    ("address", "status"),
    [("evaluation=9-9", 404), ("evaluation=x", 422), ("filter=some", 422), ("page=0", 422), ("text=" + "x" * 201, 422)],
)
def test_invalid_address_is_refused(lab: TestClient, address: str, status: int) -> None:
    assert lab.get(f"{ADDRESS}?{address}").status_code == status


def test_run_without_predictions_says_so(lab: TestClient) -> None:
    assert "No predictions are recorded" in lab.get(f"/runs/{RUNNING}/predictions").text
    assert "No predictions are recorded" in lab.get("/runs/reported-squad/predictions").text
    assert "predictions" not in lab.get(f"/runs/{RUNNING}").text


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write_run(tmp_path / "runs", SPEC)
    ingest_home(tmp_path)
    return tmp_path


def file_of(home: Path) -> Path:
    return home / "runs" / SPEC.run_id / "predictions" / "attempt-0001-step-00000100-dev.jsonl"


def test_missing_file_is_reported(home: Path) -> None:
    file_of(home).unlink()
    with client_on(home) as client:
        answer = client.get(f"/runs/{SPEC.run_id}/predictions")
    assert answer.status_code == 200
    assert "The predictions file is not on this machine" in answer.text
    assert "attempt-0001-step-00000100-dev.jsonl" in answer.text


def test_damaged_lines_are_counted(home: Path) -> None:
    with file_of(home).open("a", encoding="utf-8") as stream:
        stream.write('{"id": "torn')
    with client_on(home) as client:
        page = client.get(f"/runs/{SPEC.run_id}/predictions").text
    assert "1 line of the file is damaged and not shown" in page
    assert "9 of 27 questions right" in page


def test_path_outside_the_run_is_not_read(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", SPEC)
    (tmp_path / "secret").write_text(json.dumps(ANSWERS[0]))
    journal = tmp_path / "runs" / SPEC.run_id / "journal" / "attempt-0001-node-00000.jsonl"
    journal.write_text(journal.read_text().replace("predictions/attempt-0001-step-00000100-dev.jsonl", "../../secret"))
    with client_on(tmp_path) as client:
        page = client.get(f"/runs/{SPEC.run_id}/predictions").text
    assert "The predictions file is not on this machine" in page
    assert "<article" not in page


def test_page_of_long_texts_stays_small(tmp_path: Path) -> None:
    long = tuple({**answer, "context": answer["context"] + "word " * 5_000} for answer in ANSWERS)
    with client_on(tmp_path, replace(SPEC, answers=long)) as client:
        assert len(client.get(f"/runs/{SPEC.run_id}/predictions").content) < MOST_BYTES


@pytest.mark.parametrize("start", [0, 5, 700, 2_000, 3_990])
def test_long_context_is_cut_around_the_span(start: int) -> None:
    context = "".join(chr(97 + number % 26) for number in range(4_000))
    text = context[start : start + 10]
    row = PredictionRow(
        number=1,
        id="q",
        question="?",
        context=context,
        answers=(),
        prediction=text,
        start=start,
        score=None,
        is_right=False,
        f1=0.0,
    )
    before, span, after = passage(row)
    assert span == text
    shown = before.strip("…") + span + after.strip("…")
    assert shown in context
    assert MAX_CONTEXT - 2 <= len(before + span + after) <= MAX_CONTEXT + 2
    assert passage(replace(row, start=None))[1] == ""
