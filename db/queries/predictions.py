"""Pages of an evaluation's predictions file, which has one line per question and is read as a stream."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

from db.ingest.lines import LineError, parse, values_of
from db.journal_schema import Check, Count, Number, Text

AnswerFilter = Literal["all", "right", "wrong"]
MAX_LINE_BYTES = 1 << 20
"""Contexts of SQuAD have a few thousand bytes."""


def _are_texts(value: object) -> bool:
    return type(value) is list and all(type(text) is str for text in value)


Texts = Annotated[list[str], Check("a list of texts", _are_texts)]
Fraction = Annotated[float, Check("0 to 1", lambda value: type(value) in (int, float) and 0 <= value <= 1)]


@dataclass(frozen=True, kw_only=True)
class _Prediction:
    id: Text
    question: Text
    context: Text
    prediction: Text
    start: Count | None = None
    """Offset of the prediction in the context, or None if it does not occur there."""
    score: Number | None = None
    f1: Fraction


@dataclass(frozen=True, kw_only=True)
class _Line(_Prediction):
    answers: Texts
    em: Fraction


@dataclass(frozen=True, kw_only=True)
class PredictionRow(_Prediction):
    """One question with the predicted answer."""

    number: int
    """Line number in the file, from 1."""
    answers: tuple[str, ...]
    """Distinct gold answers."""
    is_right: bool
    """Exact match with a gold answer."""


@dataclass(frozen=True)
class PredictionPage:
    """One page of the matching questions."""

    rows: tuple[PredictionRow, ...]
    num_matching: int
    num_right: int
    """Exact matches among all questions of the file."""
    num_all: int
    num_damaged: int
    """Invalid lines; they are not counted elsewhere."""


def read_predictions(
    path: Path, *, answer_filter: AnswerFilter = "all", text: str = "", limit: int = 10, offset: int = 0
) -> PredictionPage:
    """Return one page of the matching questions; memory contains that page and one line.

    `text` is a substring of the question, the prediction, a gold answer or the id, in any case.
    """
    rows: list[PredictionRow] = []
    num_matching = num_right = num_all = num_damaged = 0
    wanted = text.casefold()
    with path.open("rb") as stream:
        for number, raw in enumerate(_lines(stream), start=1):
            row = _prediction(number, raw)
            if row is None:
                num_damaged += 1
                continue
            num_all += 1
            num_right += row.is_right
            if _matches(row, answer_filter, wanted):
                if offset <= num_matching < offset + limit:
                    rows.append(row)
                num_matching += 1
    return PredictionPage(tuple(rows), num_matching, num_right, num_all, num_damaged)


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield every line; a line that is too long is cut, which makes it invalid JSON."""
    while raw := stream.readline(MAX_LINE_BYTES):
        yield raw
        while len(raw) == MAX_LINE_BYTES and not raw.endswith(b"\n"):
            raw = stream.readline(MAX_LINE_BYTES)


def _prediction(number: int, raw: bytes) -> PredictionRow | None:
    try:
        line = values_of(parse(raw), _Line)
    except LineError:
        return None
    start, prediction = line["start"], line["prediction"]
    if start is not None and line["context"][start : start + len(prediction)] != prediction:
        line["start"] = None
    line["answers"] = tuple(dict.fromkeys(line["answers"]))
    return PredictionRow(number=number, is_right=line.pop("em") == 1, **line)


def _matches(row: PredictionRow, answer_filter: AnswerFilter, wanted: str) -> bool:
    if answer_filter != "all" and row.is_right != (answer_filter == "right"):
        return False
    if not wanted:
        return True
    return any(wanted in text.casefold() for text in (row.question, row.prediction, row.id, *row.answers))
