"""SQuAD files are read, and a defect is reported in one line."""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticqa.data.squad.read import MAX_UNPACKED_BYTES, read_squad
from elasticqa.errors import DataError
from tests.support.squad_samples import CONTEXT, QUESTIONS, document, write

Damage = Callable[[dict[str, Any]], object]


def paragraph(top: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = top["data"][0]["paragraphs"][0]
    return result


def question(top: dict[str, Any], number: int = 1) -> dict[str, Any]:
    result: dict[str, Any] = paragraph(top)["qas"][number]
    return result


def answer(top: dict[str, Any], number: int = 1) -> dict[str, Any]:
    result: dict[str, Any] = question(top, number)["answers"][0]
    return result


def refusal(path: Path, *, for_training: bool = True, strict: bool = False) -> DataError:
    with pytest.raises(DataError) as refused:
        read_squad(path, for_training=for_training, strict=strict)
    message = str(refused.value)
    assert "\n" not in message
    assert message.startswith(str(path))
    return refused.value


def test_examples_of_a_file_are_read_in_order(tmp_path: Path) -> None:
    data = read_squad(write(tmp_path / "a.json", document()), for_training=True)
    assert data.num_skipped == 0
    assert [(e.id, e.question, e.answers[0].text) for e in data.examples] == list(QUESTIONS)
    assert {e.context for e in data.examples} == {CONTEXT}
    assert all(e.answers[0].is_at_offset(e.context) for e in data.examples)
    assert {(e.title, e.article) for e in data.examples} == {("Oder", 0)}


def test_gzip_reads_like_plain_json(tmp_path: Path) -> None:
    plain = write(tmp_path / "a.json", document())
    packed = tmp_path / "a.json.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_squad(packed, for_training=True) == read_squad(plain, for_training=True)


def test_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(document()), encoding="utf-8-sig")
    assert len(read_squad(path, for_training=True).examples) == len(QUESTIONS)


def test_article_without_title_is_read(tmp_path: Path) -> None:
    top = document()
    del top["data"][0]["title"]
    assert read_squad(write(tmp_path / "a.json", top), for_training=True).examples[0].title == ""


@pytest.mark.parametrize("start", [-1, 0, 10_000])
def test_misplaced_answer_is_skipped_in_training_and_counted(tmp_path: Path, start: int) -> None:
    top = document()
    answer(top)["answer_start"] = start
    path = write(tmp_path / "a.json", top)
    data = read_squad(path, for_training=True)
    assert [e.id for e in data.examples] == ["q1", "q3", "q4"]
    assert data.num_skipped == 1
    evaluation = read_squad(path, for_training=False)
    assert [e.id for e in evaluation.examples] == ["q1", "q2", "q3", "q4"]
    assert evaluation.num_skipped == 0


def test_misplaced_answer_is_refused_by_strict_training_only(tmp_path: Path) -> None:
    top = document()
    answer(top, 2)["answer_start"] = 3
    path = write(tmp_path / "a.json", top)
    error = refusal(path, strict=True)
    assert (error.place.article, error.place.title, error.place.paragraph) == (1, "Oder", 1)
    assert (error.place.question_id, error.place.field) == ("q3", "answer_start")
    assert "'fewer than 2,000' is not at offset 3" in str(error)
    assert read_squad(path, for_training=False, strict=True).num_skipped == 0


def test_file_of_misplaced_answers_only_is_refused(tmp_path: Path) -> None:
    top = document()
    for number in range(len(QUESTIONS)):
        answer(top, number)["answer_start"] += 1
    assert "4 skipped for an answer that is not at its offset" in str(refusal(write(tmp_path / "a.json", top)))


START = "answers[0].answer_start"
DAMAGES: dict[str, tuple[Damage, str | None, str]] = {
    "no data": (lambda top: top.pop("data"), "data", "is missing"),
    "data no list": (lambda top: top.update(data={}), "data", "must be a list"),
    "article no object": (lambda top: top.update(data=[7]), None, r"must be an object, not an integer \(7\)"),
    "title no string": (lambda top: top["data"][0].update(title=7), "title", "must be a string"),
    "no paragraphs": (lambda top: top["data"][0].pop("paragraphs"), "paragraphs", "is missing"),
    "paragraph no object": (lambda top: top["data"][0].update(paragraphs=[None]), None, "not null"),
    "no context": (lambda top: paragraph(top).pop("context"), "context", "is missing"),
    "context null": (lambda top: paragraph(top).update(context=None), "context", "not null"),
    "context blank": (lambda top: paragraph(top).update(context=" \n"), "context", "is empty"),
    "context surrogate": (lambda top: paragraph(top).update(context="a\ud800"), "context", "surrogate"),
    "no qas": (lambda top: paragraph(top).pop("qas"), "qas", "is missing"),
    "question no object": (lambda top: paragraph(top).update(qas=["x"]), None, "must be an object"),
    "no id": (lambda top: question(top).pop("id"), "id", "is missing"),
    "id no string": (lambda top: question(top).update(id=1.5), "id", "must be a string, not a number"),
    "id empty": (lambda top: question(top).update(id=""), "id", "is empty"),
    "id again": (lambda top: question(top).update(id="q1"), "id", "already the id of article 1, paragraph 1"),
    "no question": (lambda top: question(top).pop("question"), "question", "is missing"),
    "question empty": (lambda top: question(top).update(question=""), "question", "is empty"),
    "no answers": (lambda top: question(top).pop("answers"), "answers", "is missing"),
    "answers empty": (lambda top: question(top).update(answers=[]), "answers", r"v2\.0 is not supported"),
    "answers object": (lambda top: question(top).update(answers={"text": []}), "answers", "must be a list"),
    "answer no object": (lambda top: question(top).update(answers=["x"]), "answers[0]", "must be an object"),
    "no text": (lambda top: answer(top).pop("text"), "answers[0].text", "is missing"),
    "text empty": (lambda top: answer(top).update(text=""), "answers[0].text", "is empty"),
    "no start": (lambda top: answer(top).pop("answer_start"), START, "is missing"),
    "start a string": (lambda top: answer(top).update(answer_start="5"), START, r"not a string \('5'\)"),
    "start a boolean": (lambda top: answer(top).update(answer_start=True), START, "not true or false"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("for_training", [True, False])
def test_invalid_field_is_named(tmp_path: Path, damage: str, for_training: bool) -> None:
    change, field, rule = DAMAGES[damage]
    top = document()
    change(top)
    error = refusal(write(tmp_path / "a.json", top), for_training=for_training)
    assert error.place.field == field
    assert error.args[1] == error.rule
    with pytest.raises(DataError, match=rule):
        raise error
    if field is not None and field.split("[")[0] in ("question", "answers"):
        assert "article 1 ('Oder'), paragraph 1, question 2, id 'q2', field " in str(error)


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"[]", "must be an object, not a list"),
        (b"null", "must be an object, not null"),
        (b'{"data": []}', "has no usable question: it is empty"),
        (b'{"data": [{"title": "x", "paragraphs": []}]}', "has no usable question: it is empty"),
        (b"\xff\xfe", "is not UTF-8: byte 0 is 0xff"),
        (b"[" * 200_000, "is nested too deep"),
        (b'{"data":' * 200_000, "is nested too deep"),
        (b'{"data": ' + b"9" * 10_000 + b"}", "is not JSON that can be read"),
        (gzip.compress(b"{}")[:-3], "is a truncated or damaged gzip file"),
        (gzip.compress(b"{}" * 500)[:12] + b"\xff" * 20, "is a truncated or damaged gzip file"),
        (b"\x1f\x8b\x00\x00", "is a truncated or damaged gzip file"),
    ],
)
def test_damaged_file_is_refused_in_one_line(tmp_path: Path, content: bytes, rule: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    error = refusal(path)
    with pytest.raises(DataError, match=rule):
        raise error


def test_plain_file_named_gz_is_refused(tmp_path: Path) -> None:
    assert "damaged gzip file: Not a gzipped file" in str(refusal(write(tmp_path / "a.json.gz", document())))


def test_absent_file_and_directory_are_refused(tmp_path: Path) -> None:
    assert "No such file" in str(refusal(tmp_path / "absent.json"))
    assert "directory" in str(refusal(tmp_path))


def test_error_with_hostile_names_is_one_short_line(tmp_path: Path) -> None:
    top = document()
    top["data"][0]["title"] = "a\nb\x1b[31m" * 1000
    question(top)["id"] = "\n" * 1000
    paragraph(top)["qas"][2]["answers"] = "x" * 100_000
    question(top)["id"] = "\r\nq"
    error = refusal(write(tmp_path / "a.json", top))
    assert len(str(error)) < len(str(tmp_path)) + 400
    assert "\x1b" not in str(error)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["data", "title", "paragraphs", "context", "qas", "id", "question", "answers", "text", "answer_start"]
            ),
            children,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(value=JSON, steps=st.lists(st.integers(0, 3), max_size=9))
def test_any_value_at_any_place_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, value: object, steps: list[int]
) -> None:
    top: Any = document()
    node, parent, key = top, None, None
    for step in steps:
        keys = list(node) if isinstance(node, dict) else list(range(len(node))) if isinstance(node, list) else []
        if not keys:
            break
        parent, key = node, keys[step % len(keys)]
        node = node[key]
    if parent is None:
        top = value
    else:
        parent[key] = value
    path = write(tmp_path_factory.mktemp("any") / "a.json", top)
    try:
        data = read_squad(path, for_training=True)
    except DataError as error:
        assert "\n" not in str(error)  # noqa: PT017 - either outcome is right
    else:
        assert all(e.answers[0].is_at_offset(e.context) for e in data.examples)


@pytest.mark.slow
def test_whole_squad_is_read(shared_data: Path) -> None:
    train = read_squad(shared_data / "squad" / "train-v1.1.json.gz", for_training=True)
    assert (len(train.examples), train.num_skipped) == (87_599, 0)
    assert train.examples[-1].article == 441
    dev = read_squad(shared_data / "squad" / "dev-v1.1.json.gz", for_training=False)
    assert (len(dev.examples), sum(len(e.answers) for e in dev.examples)) == (10_570, 34_726)


def test_xquad_is_read(shared_data: Path) -> None:
    data = read_squad(shared_data / "xquad" / "xquad.en.json", for_training=True)
    assert (len(data.examples), data.num_skipped) == (1_190, 0)


def test_gzip_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.json.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range((MAX_UNPACKED_BYTES >> 24) + 1):
            file.write(bytes(1 << 24))
    with pytest.raises(DataError, match="unpacks to more than"):
        read_squad(path, for_training=True)


def test_pipe_is_refused_without_reading_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train.json")
    with pytest.raises(DataError, match="is not a regular file"):
        read_squad(tmp_path / "train.json", for_training=True)
