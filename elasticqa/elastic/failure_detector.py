"""How long a rank may be silent, and what is said of the one that ends an attempt."""

from typing import NamedTuple

from elasticqa.elastic.failures import Departure
from elasticqa.errors import ConfigError, shown

SILENCE_VARIABLE = "ELASTICQA_PEER_TIMEOUT_S"
SILENCE_S = 20.0
"""Without a beat a rank counts as stopped: threads of a busy or swapping machine come late, but not so late."""
_LEAST_SILENCE_S, _MOST_SILENCE_S = 5, 86_400
_LIKELIER = ("failed", "changed", "silent", "gone")
"""Kinds of signs that come together: the error of a peer says only that a connection broke."""


def silence_s(text: str | None) -> float:
    """Return the seconds after which a rank counts as stopped, given the variable's value.

    Raises:
        ConfigError: it is no such number.
    """
    if text is None:
        return SILENCE_S
    is_number = text.isascii() and text.isdigit() and len(text) < 10
    if not (is_number and _LEAST_SILENCE_S <= int(text) <= _MOST_SILENCE_S):
        raise ConfigError(
            f"{SILENCE_VARIABLE}={shown(text)} is no whole number of seconds from {_LEAST_SILENCE_S} to "
            f"{_MOST_SILENCE_S}: unset it for {SILENCE_S:g} s"
        )
    return float(text)


class Verdict(NamedTuple):
    """The departure that ends the attempt."""

    rank: int
    departure: Departure


class Suspicion:
    """Signs of what ends the attempt; the first sets the time of the verdict, the likeliest is the cause."""

    def __init__(self) -> None:
        self.cause: Verdict | None = None
        self._decide_at = 0.0

    def add(self, sign: Verdict, now: float, wait_s: float) -> bool:
        """Take a sign, on which to decide so many seconds from now at the latest; return whether it is the cause."""
        is_first = self.cause is None
        self._decide_at = now + wait_s if is_first else min(self._decide_at, now + wait_s)
        if self.cause is None or _LIKELIER.index(sign.departure.kind) > _LIKELIER.index(self.cause.departure.kind):
            self.cause = sign
        return self.cause is sign

    def settle(self, cause: Verdict) -> None:
        """Take what is sure, whatever else has been seen."""
        self.cause, self._decide_at = cause, 0.0

    def is_due(self, now: float) -> bool:
        """Whether it is time for the verdict."""
        return self.cause is not None and now >= self._decide_at
