"""/healthz for monitoring: is the database reachable?"""

from fastapi import APIRouter
from pydantic import BaseModel
from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import JSONResponse, Response

from dashboard.routes.dependencies import SessionDep
from db.queries import num_runs

router = APIRouter()


class Health(BaseModel):
    """State of the database and its number of runs."""

    status: str
    num_runs: int


@router.get("/healthz", tags=["server"], response_model=Health)
def health(session: SessionDep) -> Health | Response:
    """Return the number of runs, or 503 while the database cannot be reached."""
    try:
        return Health(status="ok", num_runs=num_runs(session))
    except SQLAlchemyError as error:
        return JSONResponse({"status": f"database: {type(error).__name__}", "num_runs": 0}, 503)
