"""Read and validate SQuAD v1.1 JSON files."""

import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from elasticqa.errors import DataError, Place, shown

MAX_UNPACKED_BYTES = 1 << 30
"""Limit of the unpacked file, thirty times the size of SQuAD: a small gzip file must not fill the memory."""

_GZIP_MAGIC = b"\x1f\x8b"
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_KINDS = {
    str: "a string",
    int: "an integer",
    list: "a list",
    dict: "an object",
    float: "a number",
    bool: "true or false",
}

T = TypeVar("T", str, int, list[object], dict[str, object])


@dataclass(frozen=True, slots=True)
class Answer:
    """A gold answer; ``start`` is its character offset in the context."""

    text: str
    start: int

    def is_at_offset(self, context: str) -> bool:
        """Whether ``context`` contains the text at ``start``."""
        return self.start >= 0 and context.startswith(self.text, self.start)


@dataclass(frozen=True, slots=True)
class Example:
    """One question on one context; examples of a paragraph share the context string."""

    id: str
    title: str
    context: str
    question: str
    answers: tuple[Answer, ...]
    article: int
    """Index of its article in the file."""


@dataclass(frozen=True, slots=True)
class SquadData:
    """The examples of a file, in order; ``num_skipped`` others have an answer that is not at its offset."""

    examples: list[Example]
    num_skipped: int


def read_squad(path: Path, *, for_training: bool, strict: bool = False, needs_answers: bool = True) -> SquadData:
    """Return the examples of a SQuAD v1.1 file, ``.json`` or ``.json.gz`` (detected by content).

    For training, an example with an answer that is not at its offset in the context is skipped and counted; ``strict``
    refuses the file instead. Evaluation uses only the texts of answers. ``needs_answers`` is False for prediction.

    Raises:
        DataError: the file is not readable, not JSON, or not in SQuAD v1.1 format.
    """
    examples: list[Example] = []
    num_skipped = 0
    first_of_id: dict[str, Place] = {}
    for example, place in _examples(path, needs_answers):
        first = first_of_id.setdefault(example.id, place)
        if first is not place:
            other = f"article {first.article}, paragraph {first.paragraph}, question {first.question}"
            raise DataError(replace(place, field="id"), f"already the id of {other}")
        checked = example.answers if for_training else ()
        misplaced = next((answer for answer in checked if not answer.is_at_offset(example.context)), None)
        if misplaced is None:
            examples.append(example)
        elif not strict:
            num_skipped += 1
        else:
            rule = f"{shown(misplaced.text)} is not at offset {misplaced.start} of the context"
            way_out = "correct it, or drop --strict to skip it"
            raise DataError(replace(place, field="answer_start"), f"{rule}; {way_out}")
    if not examples:
        cause = f"{num_skipped} skipped for an answer that is not at its offset" if num_skipped else "it is empty"
        raise DataError(Place(path), f"has no usable question: {cause}")
    return SquadData(examples, num_skipped)


def _examples(path: Path, needs_answers: bool) -> Iterator[tuple[Example, Place]]:
    top = _object(_load(path), Place(path))
    for number, article in enumerate(_field(top, "data", list, Place(path)), 1):
        place = Place(path, article=number)
        fields = _object(article, place)
        title = _field(fields, "title", str, place) if "title" in fields else ""
        place = replace(place, title=title or None)
        for paragraph_number, paragraph in enumerate(_field(fields, "paragraphs", list, place), 1):
            yield from _paragraph(paragraph, title, replace(place, paragraph=paragraph_number), needs_answers)


def _paragraph(value: object, title: str, place: Place, needs_answers: bool) -> Iterator[tuple[Example, Place]]:
    paragraph = _object(value, place)
    context = _text(paragraph, "context", place)
    article = (place.article or 1) - 1
    for number, item in enumerate(_field(paragraph, "qas", list, place), 1):
        question_place = replace(place, question=number)
        question = _object(item, question_place)
        question_id = _text(question, "id", question_place)
        question_place = replace(question_place, question_id=question_id)
        text = _text(question, "question", question_place)
        answers = _answers(question, question_place) if needs_answers or question.get("answers") else ()
        yield Example(question_id, title, context, text, answers, article), question_place


def _answers(question: dict[str, object], place: Place) -> tuple[Answer, ...]:
    items = _field(question, "answers", list, place)
    if not items:
        rule = "is empty: in SQuAD v1.1 each question has an answer (v2.0 is not supported)"
        raise DataError(replace(place, field="answers"), rule)
    answers = []
    for number, item in enumerate(items):
        prefix = f"answers[{number}]"
        fields = _object(item, place, prefix)
        text = _text(fields, "text", place, f"{prefix}.")
        answers.append(Answer(text, _field(fields, "answer_start", int, place, f"{prefix}.")))
    return tuple(answers)


def _object(value: object, place: Place, field: str | None = None) -> dict[str, object]:
    if not isinstance(value, dict):
        raise DataError(replace(place, field=field), f"must be an object, not {_kind(value)}")
    return value


def _field(fields: dict[str, object], key: str, kind: type[T], place: Place, prefix: str = "") -> T:
    if key not in fields:
        raise DataError(replace(place, field=f"{prefix}{key}"), "is missing")
    value = fields[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        rule = f"must be {_KINDS[kind]}, not {_kind(value)}"
        raise DataError(replace(place, field=f"{prefix}{key}"), rule)
    return value


def _text(fields: dict[str, object], key: str, place: Place, prefix: str = "") -> str:
    text = _field(fields, key, str, place, prefix)
    if not text.strip():
        raise DataError(replace(place, field=f"{prefix}{key}"), "is empty")
    # A JSON escape can be half of a surrogate pair, which no tokenizer can encode.
    if not text.isascii() and _LONE_SURROGATE.search(text):
        raise DataError(replace(place, field=f"{prefix}{key}"), "has a lone surrogate, which is not valid Unicode")
    return text


def _kind(value: object) -> str:
    return "null" if value is None else f"{_KINDS[type(value)]} ({shown(value)})"


def read_content(path: Path) -> bytes:
    """Return the bytes of a file.

    Raises:
        DataError: it cannot be read.
    """
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise DataError(Place(path), "is not a regular file: a pipe or a device cannot be read twice")
        return path.read_bytes()
    except OSError as error:
        raise DataError(Place(path), f"cannot be read: {error.strerror}") from error


def _unpacked(content: bytes, place: Place) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        unpacked = file.read(MAX_UNPACKED_BYTES + 1)
    if len(unpacked) > MAX_UNPACKED_BYTES:
        raise DataError(place, f"unpacks to more than {MAX_UNPACKED_BYTES:,} bytes: split the file, or unpack it")
    return unpacked


def _load(path: Path) -> object:
    place = Place(path)
    content = read_content(path)
    try:
        if path.suffix == ".gz" or content.startswith(_GZIP_MAGIC):
            content = _unpacked(content, place)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(place, f"is a truncated or damaged gzip file: {error}") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(place, f"is not UTF-8: byte {error.start} is {content[error.start]:#04x}") from error
    try:
        return json.loads(text)
    except RecursionError as error:
        raise DataError(place, "is nested too deep for SQuAD JSON") from error
    except json.JSONDecodeError as error:
        raise DataError(place, f"is not JSON: {error}") from error
    except ValueError as error:  # an integer of thousands of digits
        raise DataError(place, f"is not JSON that can be read: {error}") from error
