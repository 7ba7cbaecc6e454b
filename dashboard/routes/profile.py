"""Profiler traces of one run at /runs/{run_id}/profile, and their files to download."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, HTTPException, Query
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from dashboard.figures.profile import parts_figure
from dashboard.rendering.responses import figure_response, render
from dashboard.routes.dependencies import NowDep, RunsDirDep, SessionDep
from db import queries
from db.storage.run_files import file_in_run

router = APIRouter(include_in_schema=False)
_MAX_INTEGER = 2**31 - 1
MAX_DEVICES = 32


class TraceQuery(BaseModel):
    """Query parameters of a trace; without `attempt`, the lowest rank of the newest attempt."""

    attempt: int | None = Field(None, ge=1, le=_MAX_INTEGER)
    node_rank: int = Field(0, ge=0, le=_MAX_INTEGER)
    line: int = Field(0, ge=0, le=_MAX_INTEGER)


def requested_trace(
    session: SessionDep, now: NowDep, run_id: str, query: Annotated[TraceQuery, Query()]
) -> queries.ProfileRow:
    """Return the requested trace of a run; 404 if the run has no such trace."""
    queries.get_run(session, run_id, now)
    keys = queries.profile_keys(session, run_id)
    requested = (query.attempt, query.node_rank, query.line)
    for key in keys:
        if query.attempt is None or (key.attempt, key.node_rank, key.line) == requested:
            return queries.profile_of(session, run_id, key)
    raise HTTPException(404, "this run has no such trace" if keys else "this run has no recorded trace")


TraceDep = Annotated[queries.ProfileRow, Depends(requested_trace)]


@router.get("/runs/{run_id}/profile")
def profile(
    request: Request, session: SessionDep, now: NowDep, runs_dir: RunsDirDep, run_id: str, chosen: TraceDep
) -> Response:
    """Show one trace of a run."""
    files = {name: file_of(runs_dir, run_id, chosen, name) for name in ("trace", "table")}
    context = {
        "run": queries.get_run(session, run_id, now),
        "keys": queries.profile_keys(session, run_id),
        "profile": chosen,
        "summary": chosen.summary,
        "shares": queries.device_shares(chosen.summary),
        "files": {name: path.stat().st_size for name, path in files.items() if path is not None},
        "query_of": query_of,
    }
    return render(request, "profile.html", context)


@router.get("/figures/runs/{run_id}/profile.json")
def profile_figure(chosen: TraceDep) -> Response:
    """Return the share of time by kind of work for each device of a trace, or for the host if it has no device."""
    summary = chosen.summary
    span_us = summary.span_us
    bars = [(f"device {row.device}", queries.device_parts(row, span_us)) for row in summary.devices if span_us]
    return figure_response(parts_figure(bars[:MAX_DEVICES] or [("host", queries.time_parts(summary))]))


@router.get("/runs/{run_id}/profile/{name}")
def download(runs_dir: RunsDirDep, run_id: str, name: str, chosen: TraceDep) -> Response:
    """Return the trace file or its text table."""
    path = file_of(runs_dir, run_id, chosen, name)
    if path is None:
        raise HTTPException(404, f"the run's directory has no file {name!r} of this trace on this machine")
    media_type = {".gz": "application/gzip", ".json": "application/json"}.get(path.suffix, "text/plain")
    return FileResponse(path, media_type=media_type, filename=f"{run_id}-{path.name}")


def file_of(runs_dir: Path, run_id: str, chosen: queries.ProfileRow, name: str) -> Path | None:
    """Return the file `trace` or `table` of a trace, or None if it is not on this machine."""
    if chosen.trace is None or name not in {"trace", "table"}:
        return None
    stem = chosen.trace.removesuffix(".gz").removesuffix(".json")
    return file_in_run(runs_dir, run_id, chosen.trace if name == "trace" else f"{stem}-table.txt")


def query_of(key: queries.ProfileKey) -> str:
    """Return the query string of a trace."""
    return urlencode({name: value for name, value in asdict(key).items() if name in TraceQuery.model_fields})
