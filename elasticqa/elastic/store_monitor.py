"""Whether the store that a job's nodes meet at is still there: the node that hosts it may die or stop."""

import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta

from torch.distributed import TCPStore  # type: ignore[attr-defined]

PROBE_S = 2.0
_CONNECT_S = 5.0


class StoreWatch:
    """Asks the store every other second; one that does not answer for long is lost.

    Until it is met for the first time nobody may be there: the node that hosts it comes later, and torch's rendezvous
    sets that a limit. Whoever is there has to answer: a foreign program at the port would let torch wait for ever.
    """

    def __init__(self, host: str, port: int, silence_s: float, on_loss: Callable[[str], None]) -> None:
        """Prepare.

        Args:
            host: of the store.
            port: of the store.
            silence_s: without an answer for so long it is lost.
            on_loss: called with a sentence, in a thread, once.
        """
        self._host, self._port = host, port
        self._silence_s = silence_s
        self._on_loss = on_loss
        self._heard_at = 0.0
        self._is_met = False
        self._is_over = threading.Event()

    def start(self) -> None:
        """Begin to ask."""
        self._heard_at = time.monotonic()
        # Two threads: a store on a machine that stopped lets whoever asks it wait for ever.
        for work in (self._ask, self._judge):
            threading.Thread(target=work, name=f"store watch{work.__name__}", daemon=True).start()

    def stop(self) -> None:
        """Ask no more: a store of a job that is over is not lost."""
        self._is_over.set()

    def _ask(self) -> None:
        store: TCPStore | None = None
        while not self._is_over.is_set():
            try:
                store = store or self._connect()
                store.check(["elasticqa/watched"])
                self._heard_at, self._is_met = time.monotonic(), True
            except OSError:
                if not self._is_met:
                    self._heard_at = time.monotonic()
            except RuntimeError:
                store = None
            self._is_over.wait(PROBE_S)

    def _connect(self) -> TCPStore:
        # First without torch, which says much of an attempt that fails.
        socket.create_connection((self._host, self._port), _CONNECT_S).close()
        timeout = timedelta(seconds=_CONNECT_S)
        return TCPStore(self._host, self._port, is_master=False, timeout=timeout, wait_for_workers=False)

    def _judge(self) -> None:
        before = time.monotonic()
        while not self._is_over.wait(PROBE_S / 2):
            now = time.monotonic()
            if now - before > self._silence_s / 2:
                self._heard_at = now  # this process was the one that stopped
            before = now
            if now - self._heard_at > self._silence_s:
                self._on_loss(
                    f"the rendezvous store at {self._host} port {self._port} was not heard of for "
                    f"{now - self._heard_at:.0f} s"
                )
                return
