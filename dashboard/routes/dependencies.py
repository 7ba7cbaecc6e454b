"""What FastAPI passes to a route: query parameters, a database session, the time, and a cache of groups."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Depends, Request
from pydantic import BaseModel
from sqlalchemy.orm import Session

from db.queries import Group, groups_revision

MAX_ENTRIES = 16
"""Maximum number of cached entries: an entry can hold thousands of runs, and requests choose the keys."""


class PageQuery(BaseModel):
    """Query parameters of a page."""

    def address(self, path: str, **changes: object) -> str:
        """Return the address of a path with these parameters, some of them changed; defaults are left out."""
        query = self.model_copy(update=changes).model_dump(by_alias=True, exclude_defaults=True)
        return path + (f"?{urlencode(query, doseq=True)}" if query else "")


class GroupCache:
    """Keeps groups of repeats until a finished run is added, removed or changed; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[Any, ...], list[Group]] = OrderedDict()

    def get(self, session: Session, find: Callable[..., list[Group]], *arguments: str | None) -> list[Group]:
        """Return ``find(session, *arguments)``, which must depend on finished runs only; do not change the list."""
        # Read the revision before the groups, so that the next request notices a change in between.
        key = (groups_revision(session), find, *arguments)
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                return self._entries[key]
        groups = find(session, *arguments)
        with self._lock:
            self._entries[key] = groups
            while len(self._entries) > MAX_ENTRIES:
                self._entries.popitem(last=False)
        return groups


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
    return request.app.state.group_cache  # type: ignore[no-any-return]


SessionDep = Annotated[Session, Depends(session_of)]
NowDep = Annotated[float, Depends(now_of)]
RunsDirDep = Annotated[Path, Depends(runs_dir_of)]
GroupCacheDep = Annotated[GroupCache, Depends(group_cache_of)]
