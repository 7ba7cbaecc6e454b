"""Where the time went, compared over runs and hardware, at /profiler."""

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from dashboard.rendering.pages import page
from dashboard.routes.dependencies import SessionDep
from dashboard.text import formats
from db import queries

PAGE_SIZE = 25
router = APIRouter(include_in_schema=False)


class ProfilerQuery(BaseModel):
    """The address of one page; an empty device asks for all."""

    device_name: str = ""
    page: int = Field(1, ge=1, le=1_000_000)

    def address(self, path: str, page: int) -> str:
        """Return the address of another page of the same runs."""
        asked = {"device_name": self.device_name, "page": page}
        return f"{path}?{urlencode({name: value for name, value in asked.items() if value not in {'', 1}})}"


@router.get("/profiler")
def profiler(request: Request, session: SessionDep, query: Annotated[ProfilerQuery, Query()]) -> Response:
    """Show the newest runs that have a trace."""
    found = shown(session, query)
    context = {
        "found": found,
        "query": query,
        "num_pages": max(1, -(-found.num_matching // PAGE_SIZE)),
        "device_shares": queries.device_shares,
    }
    return page(request, "profiler.html", context)


def shown(session: SessionDep, query: ProfilerQuery) -> queries.ProfilePage:
    """Return the runs of one page."""
    offset = (query.page - 1) * PAGE_SIZE
    return queries.list_profiled_runs(session, query.device_name or None, limit=PAGE_SIZE, offset=offset)


def bar_name(run: queries.ProfiledRun) -> str:
    """Return what the bar of a run is called: the run, then its hardware."""
    name = formats.short(run.name or formats.short_id(run.run_id), 28)
    return f"{name}, {formats.short(formats.short_device(run.device_name), 28)}"
