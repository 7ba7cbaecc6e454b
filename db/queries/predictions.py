"""Pages of an evaluation's predictions file, which has one line per question and is read as a stream."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, NoReturn

AnswerFilter = Literal["all", "right", "wrong"]
MAX_LINE_BYTES = 1 << 20
"""Contexts of SQuAD have some thousands."""


@dataclass(frozen=True, kw_only=True)
class PredictionRow:
    """One question with the predicted answer."""

    number: int
    """Line number in the file, from 1."""
    id: str
    question: str
    context: str
    answers: tuple[str, ...]
    """Distinct gold answers."""
    prediction: str
    start: int | None
    """Offset of the prediction in the context, or None if it does not occur there."""
    score: float | None
    is_right: bool
    """Exact match with a gold answer."""
    f1: float
    """0 to 1."""


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

    Args:
        path: a predictions file.
        answer_filter: `right` selects exact matches, `wrong` for the others.
        text: substring of the question, the prediction, a gold answer or the id; ignores case.
        limit: rows of a page.
        offset: matching rows before the page.
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
    """Yield every line; a line that is too long is cut, so it is no JSON."""
    while raw := stream.readline(MAX_LINE_BYTES):
        yield raw
        while len(raw) == MAX_LINE_BYTES and not raw.endswith(b"\n"):
            raw = stream.readline(MAX_LINE_BYTES)


def _prediction(number: int, raw: bytes) -> PredictionRow | None:
    try:
        line = json.loads(raw.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    if type(line) is not dict or not _is_prediction(line):
        return None
    texts = [line["id"], line["question"], line["context"], line["prediction"], *line["answers"]]
    if not all(_is_unicode(text) for text in texts):
        return None
    start, length = line.get("start"), len(line["prediction"])
    if start is not None and line["context"][start : start + length] != line["prediction"]:
        start = None
    return PredictionRow(
        number=number,
        id=line["id"],
        question=line["question"],
        context=line["context"],
        answers=tuple(dict.fromkeys(line["answers"])),
        prediction=line["prediction"],
        start=start,
        score=line.get("score"),
        is_right=line["em"] == 1,
        f1=float(line["f1"]),
    )


def _is_prediction(line: dict[str, Any]) -> bool:
    texts = all(type(line.get(name)) is str for name in ("id", "question", "context", "prediction"))
    answers, start, score = line.get("answers"), line.get("start"), line.get("score")
    return (
        texts
        and type(answers) is list
        and all(type(answer) is str for answer in answers)
        and (start is None or (type(start) is int and start >= 0))
        and (score is None or _is_number(score, -1e308, 1e308))
        and all(_is_number(line.get(name), 0, 1) for name in ("em", "f1"))
    )


def _is_number(value: Any, low: float, high: float) -> bool:
    return type(value) in (int, float) and low <= value <= high


def _is_unicode(text: str) -> bool:
    """Return whether a text can be encoded: JSON can contain single surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON; write null")


def _matches(row: PredictionRow, answer_filter: AnswerFilter, wanted: str) -> bool:
    if answer_filter != "all" and row.is_right != (answer_filter == "right"):
        return False
    if not wanted:
        return True
    return any(wanted in text.casefold() for text in (row.question, row.prediction, row.id, *row.answers))
