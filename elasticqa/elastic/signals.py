"""A request to stop, set by a signal and read by the training loop: nothing is saved inside a handler."""

import ctypes
import os
import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType

STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""The end of a job, the scheduler's warning before it, Ctrl-C, and a terminal that is closed or says quit."""

AGENT_PID_VARIABLE = "ELASTICQA_AGENT_PID"
"""The process that started this one, and is to end before it."""
_PR_SET_PDEATHSIG = 1


class StopRequest:
    """Remembers the first signal; repeats within the grace period change nothing, but for a second Ctrl-C."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None

    def install(self) -> None:
        """Listen from now on; only the main thread may call this."""
        for number in STOP_SIGNALS:
            # nohup, or a shell that starts it in the background, has some of them ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._handle)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.received is None:
            self.received = signal.Signals(number)
        if number == signal.SIGINT:
            # Whoever does not want to wait for the checkpoint presses it again.
            signal.signal(signal.SIGINT, signal.SIG_DFL)


class EarlyEnd:
    """Ends a process that is asked to stop before it has anything to save, even while its main thread waits.

    No handler runs while the main thread waits for a peer in native code, so a thread listens here.
    """

    def __init__(self, end: Callable[[signal.Signals], None]) -> None:
        """Prepare.

        Args:
            end: what ends the process; called in a thread.
        """
        self._end = end
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="early end", daemon=True)

    def start(self, request: StopRequest) -> None:
        """Listen from now on; only the main thread may call this.

        Args:
            request: whose handlers are there already, so that it may have been made before.
        """
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._thread.start()
        if request.received is not None:
            self._end(request.received)

    def cancel(self) -> None:
        """Leave signals to their handlers; a second call does nothing."""
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
    """Have this process asked to stop when its parent dies, which otherwise would leave it behind.

    Args:
        parent: process id of who started it; it may have died already.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() != parent:
        signal.raise_signal(signal.SIGTERM)
