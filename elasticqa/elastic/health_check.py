"""Health check between ranks: if a rank dies, stops or fails, all ranks end within seconds and record rank and cause.

A thread of each rank sends a heartbeat a second to rank 0's thread, which answers. It measures whether a process lives,
not how long its step takes, so collectives may keep a timeout for the slowest step.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from elasticqa.distributed.topology import Topology
from elasticqa.elastic.end_causes import EndCause
from elasticqa.elastic.failure_detector import Detection, FailureDetector, Heartbeats, MainThreadMonitor
from elasticqa.elastic.transport import Line, PeerConnections
from elasticqa.errors import one_line

HEARTBEAT_S = 1.0
_WINDOW_S = 0.5
"""Time from the first sign to the decision: a peer's error may arrive before the closed connection that caused it."""
_AGREED_S = 15.0
"""The same, for an error that all ranks raise at the same step: this rank may still save when others report it."""


class HealthCheck:
    """The health check of this rank: a context manager that every rank must enter."""

    def __init__(self, topology: Topology, timeout_s: float, on_peer_loss: Callable[[Detection], None]) -> None:
        """Prepare.

        Args:
            topology: of this attempt.
            timeout_s: seconds without a heartbeat after which a rank counts as failed.
            on_peer_loss: called in the health check's thread with the decision, and must end the process; not called
                on a rank whose own error is the cause.
        """
        self._topology, self._rank = topology, topology.rank
        self._on_peer_loss = on_peer_loss
        self._hosts = {self._rank: socket.gethostname()}
        self._peers = PeerConnections(topology)
        self._heartbeats = Heartbeats(timeout_s)
        self._detector = FailureDetector()
        self.main_thread = MainThreadMonitor()
        self._lock = threading.Lock()
        self._has_reported = False
        self._is_error_agreed = False
        self._is_decided = False
        self._is_own_error_cause = threading.Event()
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="health check", daemon=True)

    @property
    def name(self) -> str:
        """Rank and host, as the journal has them."""
        return self._name_of(self._rank)

    def _name_of(self, rank: int) -> str:
        return f"rank {rank} on {self._hosts[rank]}"

    def __enter__(self) -> Self:
        """Connect to the peers and start the thread; every rank must call this."""
        if self._topology.world_size > 1:
            self._hosts = dict(enumerate(self._topology.all_gather(self._hosts[self._rank])))
            for rank, lines in self._peers.open():
                self._receive(rank, lines, time.monotonic())
        peers = range(1, self._topology.world_size) if self._rank == 0 else [0]
        self._heartbeats.start(peers, time.monotonic())
        self._thread.start()
        return self

    def __exit__(self, _kind: object, _error: object, _traceback: object) -> None:
        """Leave the health check."""
        self.close()

    def close(self) -> None:
        """Tell the peers to expect no more heartbeats, and stop the thread; a second call does nothing."""
        if self._is_closing.is_set():
            return
        self._is_closing.set()
        self._peers.wake()
        self._thread.join()
        self._peers.close()

    @contextmanager
    def reports_errors(self, agreed: tuple[type[Exception], ...]) -> Iterator[None]:
        """Report an error of the block to the peers, as `report_error` does.

        Args:
            agreed: types of errors that every rank raises at the same step.
        """
        try:
            yield
        except BaseException as error:
            self.report_error(error, is_agreed=isinstance(error, agreed))
            raise

    def report_error(self, error: BaseException, *, is_agreed: bool) -> None:
        """Report an error to the peers and wait for the decision; return if this error is the cause.

        If the cause is another one, ``on_peer_loss`` ends the process.

        Args:
            error: raised in the main thread.
            is_agreed: every rank raises it at the same step.
        """
        if self._topology.world_size == 1 or self._is_closing.is_set() or self._has_reported:
            return
        self._has_reported, self._is_error_agreed = True, is_agreed
        what = f"failed: {one_line(error)}"
        self._announce({"rank": self._rank, "kind": "failed", "what": what, "agreed": is_agreed})
        if not is_agreed:
            self._is_own_error_cause.wait(self._heartbeats.timeout_s + _AGREED_S)

    def report_leave(self, what: str) -> None:
        """Report to the peers that this rank ends because it was asked to stop: they end too."""
        self._announce({"rank": self._rank, "kind": "changed", "what": what})

    def _announce(self, line: Line) -> None:
        with self._lock:
            if self._rank == 0:
                self._handle(line)
                if line.get("agreed") or line["kind"] == "changed":
                    # Send it now: this process may exit before the decision is due.
                    self._peers.send_to_all(line)
            else:
                self._peers.send_to_main(line)
        self._peers.wake()

    def _run(self) -> None:
        before = beat_at = time.monotonic()
        while not self._is_closing.is_set():
            ready = self._peers.wait(HEARTBEAT_S / 4)
            now = time.monotonic()
            with self._lock:
                gap, before = now - before, now
                if gap > HEARTBEAT_S:
                    self.main_thread.exclude(gap)
                if self._topology.world_size > 1 and gap > self._heartbeats.timeout_s - 2 * HEARTBEAT_S:
                    # This rank was silent for so long that its peers count it as failed, so it must end.
                    self._detector.confirm(self._detection(self._rank, "silent", f"was stopped for {gap:.0f} s"))
                    ready = []
                for rank, lines in self._peers.receive(ready):
                    self._receive(rank, lines, now)
                if now >= beat_at:
                    beat_at = now + HEARTBEAT_S
                    self._peers.send_to_all({"beat": self._rank})
                    if gap < HEARTBEAT_S:  # else lines that arrived during the gap are still to be read
                        self._check(now)
                decision = self._decide(now)
            if decision is not None:
                self._on_peer_loss(decision)
        with self._lock:
            self._peers.send_to_all({"bye": self._rank})

    def _receive(self, rank: int, lines: list[Line] | None, now: float) -> None:
        """Take what a connection delivered; None: it has ended."""
        self._heartbeats.heard(rank, now)
        for line in lines or []:
            self._handle(line)
        if lines is None and self._heartbeats.is_expected(rank):
            self._suspect(rank, "gone", "disconnected", wait_s=_WINDOW_S)

    def _handle(self, line: Line) -> None:
        if "bye" in line:
            self._heartbeats.announce_end(line["bye"])
        elif line.get("is_final"):
            self._detector.confirm(self._detection(line["rank"], line["kind"], line["what"]))
        elif "kind" in line:
            self._heartbeats.announce_end(line["rank"])
            wait_s = _AGREED_S if line.get("agreed") else _WINDOW_S
            self._suspect(line["rank"], line["kind"], line["what"], wait_s=wait_s)

    def _check(self, now: float) -> None:
        """Look for silent peers and a stuck main thread."""
        for rank, seconds in self._heartbeats.silent(now):
            self._suspect(rank, "silent", f"sent no heartbeat for {seconds:.0f} s", wait_s=0.0)
        what = self.main_thread.stuck(now)
        if what is not None:
            self._suspect(self._rank, "silent", what, wait_s=0.0)

    def _suspect(self, rank: int, kind: str, what: str, *, wait_s: float) -> None:
        is_cause = self._detector.add(self._detection(rank, kind, what), time.monotonic(), wait_s)
        if is_cause and rank == self._rank:
            self._peers.send_to_main({"rank": rank, "kind": kind, "what": what})

    def _detection(self, rank: int, kind: str, what: str) -> Detection:
        return Detection(rank, EndCause.now(kind, self._name_of(rank), what))

    def _decide(self, now: float) -> Detection | None:
        """Return the decision, once, when it is due and this process must end because of it."""
        decision = self._detector.decision(now)
        if decision is None or self._is_decided or self._is_error_agreed:
            return None
        self._is_decided = True
        rank, cause = decision
        if self._rank == 0:
            self._peers.send_to_all({"rank": rank, "kind": cause.kind, "what": cause.what, "is_final": True})
        if rank == self._rank and cause.kind in ("failed", "changed"):
            self._is_own_error_cause.set()
            return None
        return decision
