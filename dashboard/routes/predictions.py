"""Answers to the questions of one evaluation at /runs/{run_id}/predictions."""

from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, HTTPException, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from dashboard.rendering.pages import page
from dashboard.routes.dependencies import NowDep, RunsDirDep, SessionDep
from dashboard.text import formats
from db import queries

PAGE_SIZE = 10
MOST_CONTEXT = 1_500
"""Characters of a context; SQuAD's longest have some more, and then those around the answer are shown."""

MOST_ANSWER = 200
router = APIRouter(include_in_schema=False)


class PredictionsQuery(BaseModel):
    """The address of one page; without an evaluation the newest one that kept its predictions."""

    model_config = ConfigDict(populate_by_name=True)

    evaluation: str = Field("", pattern=r"^(\d{1,9}-\d{1,9})?$")
    """Attempt and line of the journal."""
    verdict: queries.Verdict = Field("all", alias="filter")
    text: str = Field("", max_length=200)
    page: int = Field(1, ge=1, le=1_000_000)

    def address(self, run_id_in_address: str, **changes: str | int) -> str:
        """Return this address with some parts changed; what has its default value is left out."""
        parts = {"evaluation": self.evaluation, "filter": self.verdict, "text": self.text, "page": self.page, **changes}
        kept = {name: part for name, part in parts.items() if part not in {"", "all", 1}}
        return f"/runs/{run_id_in_address}/predictions" + (f"?{urlencode(kept)}" if kept else "")


@dataclass(frozen=True)
class Passage:
    """A context in three parts around the predicted span; all in the first where none is marked."""

    before: str
    span: str
    after: str


@router.get("/runs/{run_id}/predictions")
def predictions(
    request: Request,
    session: SessionDep,
    now: NowDep,
    runs_dir: RunsDirDep,
    run_id: str,
    query: Annotated[PredictionsQuery, Query()],
) -> Response:
    """Show some questions with the answers that the model gave."""
    found = queries.get_run(session, run_id, now)
    kept = [row for row in queries.evaluations_of(session, run_id) if row.predictions][::-1]
    chosen = _chosen(kept, query.evaluation)
    path = None
    if chosen is not None and chosen.predictions is not None:
        path = queries.file_in_run(runs_dir, run_id, chosen.predictions)
    context = {
        "run": found,
        "query": query,
        "evaluations": kept[:100],
        "chosen": chosen,
        "name_of": name_of,
        "passage": passage,
        "most_answer": MOST_ANSWER,
        "answers": None,
        "num_pages": 1,
    }
    if path is not None:
        offset = (query.page - 1) * PAGE_SIZE
        answers = queries.read_predictions(
            path, verdict=query.verdict, text=query.text.strip(), limit=PAGE_SIZE, offset=offset
        )
        context |= {"answers": answers, "num_pages": max(1, -(-answers.num_matching // PAGE_SIZE))}
    return page(request, "predictions.html", context)


def name_of(evaluation: queries.EvaluationRow) -> str:
    """Return the name of an evaluation in an address."""
    return f"{evaluation.attempt}-{evaluation.line}"


def _chosen(kept: list[queries.EvaluationRow], name: str) -> queries.EvaluationRow | None:
    for row in kept:
        if name in {"", name_of(row)}:
            return row
    if name:
        raise HTTPException(404, f"evaluation={name!r} is none of this run that kept its predictions")
    return None


def passage(row: queries.PredictionRow) -> Passage:
    """Return the context around the predicted span, at most about ``MOST_CONTEXT`` characters of it."""
    if row.start is None or not row.prediction:
        return Passage(formats.short(row.context, MOST_CONTEXT), "", "")
    end = row.start + len(row.prediction)
    span = formats.short(row.prediction, MOST_CONTEXT // 2)
    room = MOST_CONTEXT - len(span)
    # What one side does not need, the other may have.
    left = min(row.start, max(room // 2, room - (len(row.context) - end)))
    before = ("…" if left < row.start else "") + row.context[row.start - left : row.start]
    return Passage(before, span, formats.short(row.context[end:], room - left))
