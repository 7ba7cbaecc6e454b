"""Profiler traces of all runs side by side at /profiler."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from dashboard.figures.profile import parts_figure
from dashboard.rendering.responses import figure_response, render
from dashboard.routes.dependencies import PageQuery, SessionDep
from dashboard.text import formats
from db import queries

PAGE_SIZE = 25
router = APIRouter(include_in_schema=False)


class ProfilerQuery(PageQuery):
    """Query parameters of one page; an empty device name does not filter."""

    device_name: str = ""
    page: int = Field(1, ge=1, le=1_000_000)


@router.get("/profiler")
def profiler(request: Request, session: SessionDep, query: Annotated[ProfilerQuery, Query()]) -> Response:
    """Show the newest runs that have a trace."""
    found = profiled_runs(session, query)
    context = {
        "found": found,
        "query": query,
        "num_pages": max(1, -(-found.num_matching // PAGE_SIZE)),
        "device_shares": queries.device_shares,
    }
    return render(request, "profiler.html", context)


@router.get("/figures/profiler.json")
def profiler_figure(session: SessionDep, query: Annotated[ProfilerQuery, Query()]) -> Response:
    """Return the share of time by kind of work for each trace of the page, in the order of its table."""
    rows = profiled_runs(session, query).rows
    return figure_response(parts_figure([(_bar_name(row), queries.time_parts(row.profile.summary)) for row in rows]))


def profiled_runs(session: SessionDep, query: ProfilerQuery) -> queries.ProfilePage:
    """Return the runs of one page, each with a trace."""
    offset = (query.page - 1) * PAGE_SIZE
    return queries.list_profiled_runs(session, query.device_name or None, limit=PAGE_SIZE, offset=offset)


def _bar_name(run: queries.ProfiledRun) -> str:
    name = formats.short(run.name or formats.short_id(run.run_id), 28)
    return f"{name}, {formats.short(formats.short_device(run.device_name), 28)}"
