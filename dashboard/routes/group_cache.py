"""A cache of groups of repeats, so that a page over thousands of runs does not build them on each request."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from sqlalchemy.orm import Session

from db.queries import Group, groups_revision

MAX_ENTRIES = 16
"""An entry can hold thousands of runs, and the address of a page decides how many entries there are."""


class GroupCache:
    """Keeps query results until a finished run is added, removed or changed; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._revision: tuple[Any, ...] = ()
        self._entries: OrderedDict[tuple[Any, ...], list[Group]] = OrderedDict()

    def get(self, session: Session, find: Callable[..., list[Group]], *arguments: str | None) -> list[Group]:
        """Return ``find(session, *arguments)``, which must depend on finished runs only; do not change the list."""
        # Read before the groups: a change in between is then seen by the next request.
        revision = groups_revision(session)
        key = (find, *arguments)
        with self._lock:
            if revision == self._revision and key in self._entries:
                self._entries.move_to_end(key)
                return self._entries[key]
        groups = find(session, *arguments)
        with self._lock:
            if revision != self._revision:
                self._entries.clear()
                self._revision = revision
            self._entries[key] = groups
            while len(self._entries) > MAX_ENTRIES:
                self._entries.popitem(last=False)
        return groups
