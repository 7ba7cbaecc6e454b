"""Detect silent peers and a stuck main thread, and decide which of several signs is the cause."""

import math
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from elasticqa.elastic.end_causes import KINDS_BY_LIKELIHOOD, EndCause
from elasticqa.elastic.stack_dumps import main_thread_position

STUCK_S = 600.0
"""Twice the timeout of a gloo collective; with NCCL, nothing else may end a main thread that waits forever."""


class Detection(NamedTuple):
    """A rank that ends the attempt, and why."""

    rank: int
    cause: EndCause


class FailureDetector:
    """Collects signs of a failure: the first one opens a time window, and the most likely cause in it is taken."""

    def __init__(self) -> None:
        self._detection: Detection | None = None
        self._decide_at = math.inf

    def add(self, sign: Detection, now: float, wait_s: float) -> bool:
        """Add a sign and return whether it is the most likely cause so far.

        Args:
            sign: rank and possible cause.
            now: seconds of a monotonic clock.
            wait_s: latest time of the decision, in seconds from now.
        """
        self._decide_at = min(self._decide_at, now + wait_s)
        if self._detection is None or _likelihood(sign) > _likelihood(self._detection):
            self._detection = sign
        return self._detection is sign

    def confirm(self, detection: Detection) -> None:
        """Take a detection that is certain, and make the decision due now."""
        self._detection, self._decide_at = detection, 0.0

    def decision(self, now: float) -> Detection | None:
        """Return the decision once it is due."""
        return self._detection if now >= self._decide_at else None


def _likelihood(sign: Detection) -> int:
    return KINDS_BY_LIKELIHOOD.index(sign.cause.kind)


class Heartbeats:
    """When each peer was last heard, and which peers have announced their end."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._heard_at: dict[int, float] = {}
        self._ending: set[int] = set()

    def start(self, ranks: Iterable[int], now: float) -> None:
        """Count the silence of the ranks from now."""
        self._heard_at = dict.fromkeys(ranks, now)

    def heard(self, rank: int, now: float) -> None:
        """Note that a rank has sent something."""
        self._heard_at[rank] = now

    def announce_end(self, rank: int) -> None:
        """Stop expecting heartbeats of a rank."""
        self._ending.add(rank)

    def is_expected(self, rank: int) -> bool:
        """Whether the rank has not announced its end."""
        return rank not in self._ending

    def silent(self, now: float) -> Iterator[tuple[int, float]]:
        """Yield the ranks that have been silent for longer than the timeout, with the seconds."""
        for rank, heard_at in self._heard_at.items():
            if self.is_expected(rank) and now - heard_at > self.timeout_s:
                yield rank, now - heard_at


class MainThreadMonitor:
    """Notices a main thread that stays at one position for longer than ``STUCK_S``."""

    def __init__(self) -> None:
        self._is_active = False
        self._position: object = None
        self._since = 0.0

    @contextmanager
    def active(self) -> Iterator[None]:
        """Monitor the main thread while the block runs."""
        self._since = time.monotonic()
        self._is_active = True
        try:
            yield
        finally:
            self._is_active = False

    def exclude(self, seconds: float) -> None:
        """Do not count seconds in which the whole process was stopped."""
        self._since += seconds

    def stuck(self, now: float) -> str | None:
        """Return where the main thread is stuck, as the rest of a sentence; None if it is not."""
        if not self._is_active:
            return None
        position, line = main_thread_position()
        if position != self._position:
            self._position, self._since = position, now
        elif now - self._since > STUCK_S:
            return f"was stuck for {STUCK_S:.0f} s in {line}"
        return None
