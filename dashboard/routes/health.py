"""For those who watch the server: is the record within reach?"""

from fastapi import APIRouter
from pydantic import BaseModel
from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dashboard.rendering.assets import asset_response
from dashboard.routes.dependencies import SessionDep
from db.queries import num_runs

router = APIRouter()


class Health(BaseModel):
    """The database answers and has so many runs."""

    status: str
    num_runs: int


@router.get("/healthz", tags=["server"], response_model=Health)
def health(session: SessionDep) -> Health | Response:
    """Return the number of runs, or 503 while the database is out of reach."""
    try:
        return Health(status="ok", num_runs=num_runs(session))
    except SQLAlchemyError as error:
        return JSONResponse({"status": f"database: {type(error).__name__}", "num_runs": 0}, 503)


@router.get("/static/{version}/{name}", include_in_schema=False)
def asset(request: Request, version: str, name: str) -> Response:
    """Return one of the files that pages load."""
    return asset_response(request, version, name)
