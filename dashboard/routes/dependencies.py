"""What a route is given: a session on the record and the time."""

from collections.abc import Iterator
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy.orm import Session


def session_of(request: Request) -> Iterator[Session]:
    """Yield a session for one request."""
    with Session(request.app.state.engine) as session:
        yield session


def now_of(request: Request) -> float:
    """Return Unix seconds by the application's clock."""
    return float(request.app.state.clock())


SessionDep = Annotated[Session, Depends(session_of)]
NowDep = Annotated[float, Depends(now_of)]
