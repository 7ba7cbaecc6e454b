"""Monitors the rendezvous store of a job: the node that hosts it may die or stop."""

import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta

from torch.distributed import TCPStore  # type: ignore[attr-defined]

PROBE_S = 2.0
_CONNECT_S = 5.0


class StoreMonitor:
    """Probes the store every two seconds; a store that does not answer for longer than the timeout is lost.

    Until the first answer, a port that refuses connections is not a lost store: the node that hosts it may start later,
    and torch's rendezvous limits that wait. If a program accepts the connection but does not answer as a store, the
    store counts as lost: torch would wait for it forever.
    """

    def __init__(self, host: str, port: int, timeout_s: float, on_loss: Callable[[str], None]) -> None:
        """Prepare.

        Args:
            host: of the store.
            port: of the store.
            timeout_s: seconds without an answer after which the store counts as lost.
            on_loss: called once with a sentence, in a thread.
        """
        self._host, self._port = host, port
        self._timeout_s = timeout_s
        self._on_loss = on_loss
        self._answered_at = 0.0
        self._has_answered = False
        self._is_over = threading.Event()

    def start(self) -> None:
        """Start to probe."""
        self._answered_at = time.monotonic()
        # Use two threads: a probe blocks forever if the store's machine has stopped.
        for work in (self._probe, self._check):
            threading.Thread(target=work, name=f"store monitor{work.__name__}", daemon=True).start()

    def stop(self) -> None:
        """Stop to probe: the store of a finished job is not lost."""
        self._is_over.set()

    def _probe(self) -> None:
        store: TCPStore | None = None
        while not self._is_over.is_set():
            try:
                store = store or self._connect()
                store.check(["elasticqa/watched"])
                self._answered_at, self._has_answered = time.monotonic(), True
            except OSError:
                if not self._has_answered:
                    self._answered_at = time.monotonic()
            except RuntimeError:
                store = None
            self._is_over.wait(PROBE_S)

    def _connect(self) -> TCPStore:
        # Try a plain socket first: torch logs many lines about a failed connection.
        socket.create_connection((self._host, self._port), _CONNECT_S).close()
        timeout = timedelta(seconds=_CONNECT_S)
        return TCPStore(self._host, self._port, is_master=False, timeout=timeout, wait_for_workers=False)

    def _check(self) -> None:
        before = time.monotonic()
        while not self._is_over.wait(PROBE_S / 2):
            now = time.monotonic()
            if now - before > self._timeout_s / 2:
                self._answered_at = now  # this process itself was stopped
            before = now
            if now - self._answered_at > self._timeout_s:
                self._on_loss(
                    f"the rendezvous store at {self._host} port {self._port} has not answered for "
                    f"{now - self._answered_at:.0f} s"
                )
                return
