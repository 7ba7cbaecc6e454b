"""Groups of repeats, kept from one visit to the next: thousands of runs need not be put together anew."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from sqlalchemy.orm import Session

from db.queries import Group, groups_revision

MOST_KEPT = 16
"""Answers: each has up to some thousand runs, and what is asked for is in the reader's hands."""


class GroupCache:
    """Holds answers as long as no finished run comes, goes or changes; safe in several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._revision: tuple[Any, ...] = ()
        self._kept: OrderedDict[tuple[Any, ...], list[Group]] = OrderedDict()

    def get(self, session: Session, find: Callable[..., list[Group]], *asked: str | None) -> list[Group]:
        """Return ``find(session, *asked)``, which must depend on finished runs alone; not to be changed."""
        # Read before the groups: what changes in between is found out at the next visit.
        revision = groups_revision(session)
        key = (find, *asked)
        with self._lock:
            if revision == self._revision and key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        groups = find(session, *asked)
        with self._lock:
            if revision != self._revision:
                self._kept.clear()
                self._revision = revision
            self._kept[key] = groups
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return groups
