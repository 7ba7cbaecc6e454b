"""Seconds of the phases before the first step and after the last one, by name."""

import time


class StartupTimer:
    """Measures phases without gaps: each phase starts when the previous one ends."""

    def __init__(self, began: float) -> None:
        """Start at a Unix time."""
        self._clock = began
        self._seconds: dict[str, float] = {}

    def end(self, name: str) -> None:
        """Add the time since the last phase ended to the phase of this name."""
        now = time.time()
        self._seconds[name] = self._seconds.get(name, 0.0) + now - self._clock
        self._clock = now

    def skip(self) -> None:
        """Do not count the time since the last phase ended: other lines of the journal record it."""
        self._clock = time.time()

    def take(self) -> dict[str, float]:
        """Return the seconds of the phases that ended since the last call."""
        seconds, self._seconds = self._seconds, {}
        return seconds
