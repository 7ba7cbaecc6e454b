"""The table of runs at /runs."""

from dataclasses import fields
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from dashboard.rendering.responses import render
from dashboard.routes.dependencies import NowDep, PageQuery, SessionDep
from db.queries import RunFilters, RunOrder, list_runs
from db.queries.runs import Direction, SortColumn

PAGE_SIZE = 50
COLUMNS: tuple[tuple[SortColumn, str, str], ...] = (
    ("status", "Status", ""),
    ("name", "Run", ""),
    ("recipe", "Recipe", ""),
    ("model", "Model", ""),
    ("parallel", "Strategy", ""),
    ("world_size", "Devices", ""),
    ("device_name", "Hardware", ""),
    ("em", "EM", "%"),
    ("f1", "F1", "%"),
    ("wall_clock_s", "Wall clock", ""),
    ("samples_per_s", "Features/s", ""),
    ("created_at", "Created", ""),
)
"""Column, heading and unit, in the order of the table."""
_ASCENDING_FIRST = frozenset({"name", "recipe", "model", "parallel", "device_name", "wall_clock_s"})

router = APIRouter(include_in_schema=False)


class RunsQuery(PageQuery):
    """Query parameters of one page of the table; an empty form field does not filter."""

    status: str = ""
    provenance: str = ""
    recipe: str = ""
    model: str = ""
    parallel: str = ""
    device_name: str = ""
    text: str = Field("", max_length=200)
    sort: SortColumn = "created_at"
    direction: Direction = "desc"
    page: int = Field(1, ge=1, le=1_000_000)

    def filters(self) -> RunFilters:
        """Return the filters of the query."""
        return RunFilters(**{field.name: getattr(self, field.name).strip() or None for field in fields(RunFilters)})

    def sorted_by(self, column: SortColumn) -> str:
        """Return the address of a column's heading: sort by the column, or reverse the order."""
        first: Direction = "asc" if column in _ASCENDING_FIRST else "desc"
        other: Direction = "desc" if self.direction == "asc" else "asc"
        return self.address("/runs", sort=column, direction=other if column == self.sort else first, page=1)


@router.get("/")
def home() -> Response:
    """Redirect to the runs."""
    return RedirectResponse("/runs", status_code=307)


@router.get("/runs")
def runs(request: Request, session: SessionDep, now: NowDep, query: Annotated[RunsQuery, Query()]) -> Response:
    """Show one page of the table."""
    first_row = (query.page - 1) * PAGE_SIZE
    order = RunOrder(query.sort, query.direction)
    found = list_runs(session, now, query.filters(), order, limit=PAGE_SIZE, offset=first_row)
    context = {
        "now": now,
        "query": query,
        "found": found,
        "columns": COLUMNS,
        "num_pages": max(1, -(-found.num_matching // PAGE_SIZE)),
        "first_row": first_row,
        "has_own_runs": any(value != "reported" for value, _ in found.choices["provenance"]),
        "is_filtered": query.filters() != RunFilters(),
        "is_live": any(row.status == "running" for row in found.rows),
    }
    return render(request, "runs.html", context)
