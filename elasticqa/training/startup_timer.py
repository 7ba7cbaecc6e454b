"""What a process did before its first step and after its last one, in seconds by name."""

import time


class StartupTimer:
    """A clock on which every phase ends where the next one begins, so that no second is left out."""

    def __init__(self, began: float) -> None:
        """Begin at a Unix time."""
        self._clock = began
        self._seconds: dict[str, float] = {}

    def end(self, name: str) -> None:
        """Give the time since the last phase ended to this one; a name that comes again adds up."""
        now = time.time()
        self._seconds[name] = self._seconds.get(name, 0.0) + now - self._clock
        self._clock = now

    def skip(self) -> None:
        """Leave the time since the last phase ended to others, which record it themselves."""
        self._clock = time.time()

    def take(self) -> dict[str, float]:
        """Return the seconds of the phases that have ended since the last call."""
        seconds, self._seconds = self._seconds, {}
        return seconds
