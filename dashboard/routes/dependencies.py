"""What a route is given: a session on the record, the time, and where the run directories lie."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy.orm import Session

from dashboard.background.group_cache import GroupCache


def session_of(request: Request) -> Iterator[Session]:
    """Yield a session for one request."""
    with Session(request.app.state.engine) as session:
        yield session


def now_of(request: Request) -> float:
    """Return Unix seconds by the application's clock."""
    return float(request.app.state.clock())


def runs_dir_of(request: Request) -> Path:
    """Return the directory that holds a directory a run."""
    return Path(request.app.state.runs_dir)


def groups_of(request: Request) -> GroupCache:
    """Return the groups that earlier visits have put together."""
    cache: GroupCache = request.app.state.groups
    return cache


SessionDep = Annotated[Session, Depends(session_of)]
NowDep = Annotated[float, Depends(now_of)]
RunsDirDep = Annotated[Path, Depends(runs_dir_of)]
GroupsDep = Annotated[GroupCache, Depends(groups_of)]
