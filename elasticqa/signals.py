"""A request to stop, set by a signal and read by the training loop: nothing is saved inside a handler."""

import signal
from types import FrameType

STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
"""The end of a job and the scheduler's warning before it."""


class StopRequest:
    """Remembers the first signal; repeats within the grace period change nothing."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None

    def install(self) -> None:
        """Listen from now on; only the main thread may call this."""
        for number in STOP_SIGNALS:
            signal.signal(number, self._handle)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.received is None:
            self.received = signal.Signals(number)
