"""Stop requests: a signal handler sets a flag, the training loop reads it and saves."""

import ctypes
import os
import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType

STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""End of a job, the scheduler's warning before a time limit, Ctrl-C, closed terminal, Ctrl-backslash."""

_PR_SET_PDEATHSIG = 1


class StopRequest:
    """A request to stop training, which all ranks agree on: they stop after the same step, save, and end.

    A rank votes in every step (`vote`). The votes are summed over all ranks together with the loss, and each rank
    reads the sum a few steps later (`count`). Signals after the first change nothing, except a second Ctrl-C.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        """The first stop signal of this process."""
        self._is_requested = False
        self.is_agreed = False
        """Some rank has voted to stop, and all ranks know it."""

    def install(self) -> None:
        """Handle the stop signals from now on; only the main thread may call this."""
        for number in STOP_SIGNALS:
            # If nohup or a shell (for a background job) has set a signal to ignored, keep ignoring it.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._handle)

    def request(self) -> None:
        """Ask to stop without a signal, since the run can no longer be saved or recorded."""
        self._is_requested = True

    @property
    def vote(self) -> float:
        """This rank's vote in the step that starts now: 1.0 to stop."""
        return float(self._is_requested or self.received is not None)

    def count(self, votes: float) -> None:
        """Take the votes of all ranks in one step."""
        self.is_agreed |= votes > 0

    @property
    def reason(self) -> signal.Signals:
        """The signal that ended the attempt; SIGTERM where only another rank received one."""
        return self.received or signal.SIGTERM

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.received is None:
            self.received = signal.Signals(number)
        if number == signal.SIGINT:
            # A second Ctrl-C ends the process without waiting for the checkpoint.
            signal.signal(signal.SIGINT, signal.SIG_DFL)


class EarlyExit:
    """Ends a process that is asked to stop before it has anything to save, even while its main thread waits.

    Python runs no signal handler while the main thread waits for a peer in native code, so a thread reads signals.
    """

    def __init__(self, end: Callable[[signal.Signals], None]) -> None:
        """Prepare.

        Args:
            end: ends the process; called in a thread.
        """
        self._end = end
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="early exit", daemon=True)

    def start(self, request: StopRequest) -> None:
        """Listen from now on; only the main thread may call this.

        Args:
            request: its handlers are installed; a signal that it has received already ends the process now.
        """
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._thread.start()
        if request.received is not None:
            self._end(request.received)

    def cancel(self) -> None:
        """Stop the thread; from now on only the handlers of StopRequest act. A second call does nothing."""
        if not self._is_over.is_set():
            self._is_over.set()
            signal.set_wakeup_fd(-1)
            self._writer.close()
            self._thread.join()
            self._reader.close()

    def _run(self) -> None:
        while numbers := self._reader.recv(64):
            for number in numbers:
                if number in STOP_SIGNALS and not self._is_over.is_set():
                    self._end(signal.Signals(number))


def stop_with_parent(parent: int) -> None:
    """Make the kernel send SIGTERM to this process when its parent dies.

    Args:
        parent: process id of the parent; it may have died already.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() != parent:
        signal.raise_signal(signal.SIGTERM)
