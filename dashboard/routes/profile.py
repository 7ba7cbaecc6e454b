"""Traces of one run at /runs/{run_id}/profile, with their files to take away."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, HTTPException, Query
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from dashboard.rendering.pages import page
from dashboard.routes.dependencies import NowDep, RunsDirDep, SessionDep
from db import queries

router = APIRouter(include_in_schema=False)
_BIGGEST = 2**31 - 1


class TraceQuery(BaseModel):
    """Which trace of the run; without an attempt the newest attempt's lowest rank."""

    attempt: int | None = Field(None, ge=1, le=_BIGGEST)
    node_rank: int = Field(0, ge=0, le=_BIGGEST)
    line: int = Field(0, ge=0, le=_BIGGEST)

    def chosen(self, keys: list[queries.ProfileKey]) -> queries.ProfileKey:
        """Return the trace that is asked for.

        Raises:
            HTTPException: there is none like it.
        """
        asked = (self.attempt, self.node_rank, self.line)
        for key in keys:
            if self.attempt is None or (key.attempt, key.node_rank, key.line) == asked:
                return key
        raise HTTPException(404, "no such trace of this run" if keys else "no trace of this run is recorded")


@router.get("/runs/{run_id}/profile")
def profile(
    request: Request,
    session: SessionDep,
    now: NowDep,
    runs_dir: RunsDirDep,
    run_id: str,
    query: Annotated[TraceQuery, Query()],
) -> Response:
    """Show one trace of a run."""
    found = queries.get_run(session, run_id, now)
    keys = queries.profile_keys(session, run_id)
    chosen = queries.profile_of(session, run_id, query.chosen(keys))
    files = {name: file_of(runs_dir, run_id, chosen, name) for name in ("trace", "table")}
    context = {
        "run": found,
        "keys": keys,
        "profile": chosen,
        "summary": chosen.summary,
        "shares": queries.device_shares(chosen.summary),
        "files": {name: path.stat().st_size for name, path in files.items() if path is not None},
        "asked": address_of,
    }
    return page(request, "profile.html", context)


@router.get("/runs/{run_id}/profile/{name}")
def download(
    session: SessionDep,
    now: NowDep,
    runs_dir: RunsDirDep,
    run_id: str,
    name: str,
    query: Annotated[TraceQuery, Query()],
) -> Response:
    """Hand out the trace or its text table."""
    queries.get_run(session, run_id, now)
    chosen = queries.profile_of(session, run_id, query.chosen(queries.profile_keys(session, run_id)))
    path = file_of(runs_dir, run_id, chosen, name)
    if path is None:
        raise HTTPException(404, f"no file {name!r} of this trace lies in the run's directory here")
    media_type = {".gz": "application/gzip", ".json": "application/json"}.get(path.suffix, "text/plain")
    return FileResponse(path, media_type=media_type, filename=f"{run_id}-{path.name}")


def file_of(runs_dir: Path, run_id: str, chosen: queries.ProfileRow, name: str) -> Path | None:
    """Return the `trace` or the `table` of a trace, None where it is not here."""
    if chosen.trace is None or name not in {"trace", "table"}:
        return None
    stem = chosen.trace.removesuffix(".gz").removesuffix(".json")
    return queries.file_in_run(runs_dir, run_id, chosen.trace if name == "trace" else f"{stem}-table.txt")


def address_of(key: queries.ProfileKey) -> str:
    """Return the part of an address that names a trace."""
    return urlencode({name: value for name, value in asdict(key).items() if name in TraceQuery.model_fields})
