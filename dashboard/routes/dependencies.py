"""What FastAPI passes to a route: a database session, the time, the runs directory and the cache of groups."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy.orm import Session

from dashboard.routes.group_cache import GroupCache


def session_of(request: Request) -> Iterator[Session]:
    """Yield a session for one request."""
    with Session(request.app.state.engine) as session:
        yield session


def now_of(request: Request) -> float:
    """Return Unix seconds by the application's clock."""
    return float(request.app.state.clock())


def runs_dir_of(request: Request) -> Path:
    """Return the directory of run directories."""
    return Path(request.app.state.runs_dir)


def group_cache_of(request: Request) -> GroupCache:
    """Return the application's cache of groups."""
    cache: GroupCache = request.app.state.group_cache
    return cache


SessionDep = Annotated[Session, Depends(session_of)]
NowDep = Annotated[float, Depends(now_of)]
RunsDirDep = Annotated[Path, Depends(runs_dir_of)]
GroupCacheDep = Annotated[GroupCache, Depends(group_cache_of)]
