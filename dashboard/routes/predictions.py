"""Predicted answers of one evaluation at /runs/{run_id}/predictions."""

from typing import Annotated

from fastapi import APIRouter, HTTPException, Query
from pydantic import ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from dashboard.rendering.responses import render
from dashboard.routes.dependencies import NowDep, PageQuery, RunsDirDep, SessionDep
from dashboard.text import formats
from db import queries
from db.storage.run_files import file_in_run

PAGE_SIZE = 10
MAX_CONTEXT = 1_500
"""Maximum number of characters of a context; a longer one is cut to the part around the answer."""

MAX_ANSWER = 200
router = APIRouter(include_in_schema=False)


class PredictionsQuery(PageQuery):
    """Query parameters of one page; without `evaluation`, the newest one with predictions."""

    model_config = ConfigDict(populate_by_name=True)

    evaluation: str = Field("", pattern=r"^(\d{1,9}-\d{1,9})?$")
    """Attempt, and line of its journal."""
    answer_filter: queries.AnswerFilter = Field("all", alias="filter")
    text: str = Field("", max_length=200)
    page: int = Field(1, ge=1, le=1_000_000)


@router.get("/runs/{run_id}/predictions")
def predictions(
    request: Request,
    session: SessionDep,
    now: NowDep,
    runs_dir: RunsDirDep,
    run_id: str,
    query: Annotated[PredictionsQuery, Query()],
) -> Response:
    """Show some questions with the model's answers."""
    found = queries.get_run(session, run_id, now)
    evaluations = [row for row in queries.evaluations_of(session, run_id) if row.predictions][::-1]
    chosen = _chosen(evaluations, query.evaluation)
    answers = None
    if chosen is not None and (path := file_in_run(runs_dir, run_id, chosen.predictions or "")) is not None:
        offset = (query.page - 1) * PAGE_SIZE
        answers = queries.read_predictions(
            path, answer_filter=query.answer_filter, text=query.text.strip(), limit=PAGE_SIZE, offset=offset
        )
    context = {
        "run": found,
        "query": query,
        "evaluations": evaluations[:100],
        "chosen": chosen,
        "name_of": name_of,
        "passage": passage,
        "max_answer": MAX_ANSWER,
        "answers": answers,
        "num_pages": max(1, -(-answers.num_matching // PAGE_SIZE)) if answers is not None else 1,
    }
    return render(request, "predictions.html", context)


def name_of(evaluation: queries.EvaluationRow) -> str:
    """Return the name of an evaluation in an address."""
    return f"{evaluation.attempt}-{evaluation.line}"


def _chosen(evaluations: list[queries.EvaluationRow], name: str) -> queries.EvaluationRow | None:
    for row in evaluations:
        if name in {"", name_of(row)}:
            return row
    if name:
        raise HTTPException(404, f"evaluation={name!r}: this run has no such evaluation with predictions")
    return None


def passage(row: queries.PredictionRow) -> tuple[str, str, str]:
    """Return the context before, in and after the predicted span, together at most about ``MAX_CONTEXT`` characters.

    If the position of the span is unknown, the first part has all of the text.
    """
    if row.start is None or not row.prediction:
        return formats.short(row.context, MAX_CONTEXT), "", ""
    end = row.start + len(row.prediction)
    span = formats.short(row.prediction, MAX_CONTEXT // 2)
    room = MAX_CONTEXT - len(span)
    # If one side needs less than half of the room, the other side gets the rest.
    left = min(row.start, max(room // 2, room - (len(row.context) - end)))
    before = ("…" if left < row.start else "") + row.context[row.start - left : row.start]
    return before, span, formats.short(row.context[end:], room - left)
