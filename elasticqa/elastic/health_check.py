"""Every rank looks after the others: one that dies, stops or fails ends the attempt in seconds, with who and why.

A thread of each rank sends a beat a second to rank 0's, which answers. What counts is that a process lives, not how
long its step takes, so collectives may keep a timeout for the slowest of them.
"""

import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from selectors import EVENT_READ, DefaultSelector
from typing import Self

from elasticqa.distributed.addresses import listen
from elasticqa.distributed.topology import Topology
from elasticqa.elastic.failure_detector import Suspicion, Verdict
from elasticqa.elastic.failures import departure
from elasticqa.elastic.stack_dumps import main_thread_place
from elasticqa.elastic.transport import Line, Wire, connect
from elasticqa.errors import one_line

BEAT_S = 1.0
STUCK_S = 600.0
"""In one call of the loop: twice as long as a collective of gloo waits. With NCCL nothing else may end it."""
_WINDOW_S = 0.5
"""From the first sign to the verdict: a peer's error comes with, or before, the news that its cause has died."""
_AGREED_S = 15.0
"""For an error that all ranks should raise at the same step to come up on this one too, which may be saving still."""
_CONNECT_S = 60.0


class Watch:
    """This rank's part of it; ``on_loss`` is called in its thread and must end the process."""

    def __init__(self, topology: Topology, silence_s: float, on_loss: Callable[[Verdict], None]) -> None:
        """Prepare.

        Args:
            topology: of this attempt.
            silence_s: after so long without a beat a rank counts as stopped.
            on_loss: told of the verdict, unless this rank itself raised the error.
        """
        self._rank, self._world_size = topology.rank, topology.world_size
        self._topology = topology
        self._silence_s = silence_s
        self._on_loss = on_loss
        self._host = socket.gethostname()
        self._selector = DefaultSelector()
        self._wires: dict[int, Wire] = {}
        self._heard_at: dict[int, float] = {}
        self._hosts: dict[int, str] = {}
        self._done: set[int] = set()
        self._listener: socket.socket | None = None
        self._token = ""
        self._suspicion = Suspicion()
        self._is_decided = False
        self._lock = threading.Lock()
        self._is_closing = threading.Event()
        self._is_cleared = threading.Event()
        self._has_failed = False
        self._own_error_agreed = False
        self._place: object = None
        self._place_since = 0.0
        self._is_in_loop = False
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    @property
    def name(self) -> str:
        """Of this rank, as the record has it."""
        return f"rank {self._rank} on {self._host}"

    def __enter__(self) -> Self:
        """Meet the others; every rank must call this."""
        if self._world_size > 1:
            address = None
            if self._topology.is_main:
                self._token = secrets.token_hex(16)
                self._listener = listen(self._world_size)
                self._selector.register(self._listener, EVENT_READ)
                address = (self._listener.getsockname()[1], self._token)
            port, self._token = self._topology.broadcast(address) or (0, "")
            self._hosts = dict(enumerate(self._topology.share(self._host)))
            if not self._topology.is_main:
                wire = connect(self._topology.main_address, port, _CONNECT_S)
                wire.send({"token": self._token, "rank": self._rank})
                self._add(0, wire)
            else:
                self._meet()
        self._selector.register(self._wake_reader, EVENT_READ)
        self._heard_at = dict.fromkeys(self._peers(), time.monotonic())
        self._thread.start()
        return self

    def __exit__(self, _kind: object, _error: object, _traceback: object) -> None:
        """Leave the others."""
        self.close()

    def close(self) -> None:
        """Leave the others, who go on without this rank; a second call does nothing."""
        if self._is_closing.is_set():
            return
        self._is_closing.set()
        self._wake_writer.send(b"\0")
        self._thread.join()
        for wire in self._wires.values():
            wire.close()
        for channel in (self._listener, self._wake_reader, self._wake_writer):
            if channel is not None:
                channel.close()
        self._selector.close()

    @contextmanager
    def loop(self) -> Iterator[None]:
        """Watch in the block that the main thread gets on, too."""
        self._place_since = time.monotonic()
        self._is_in_loop = True
        try:
            yield
        finally:
            self._is_in_loop = False

    @contextmanager
    def tells(self, agreed: tuple[type[Exception], ...]) -> Iterator[None]:
        """Tell the others of an error of the block, as ``failed`` does."""
        try:
            yield
        except BaseException as error:
            self.failed(error, is_agreed=isinstance(error, agreed))
            raise

    def leaves(self, what: str) -> None:
        """Tell the others that this rank ends as it was asked to: so do they."""
        self._say({"rank": self._rank, "kind": "changed", "what": what})

    def failed(self, error: BaseException, *, is_agreed: bool) -> None:
        """Tell the others of an error; return only if it is the cause, while another cause ends the process.

        Args:
            error: raised in the main thread.
            is_agreed: every rank raises it at the same step.
        """
        if self._world_size == 1 or self._is_closing.is_set() or self._has_failed:
            return
        self._has_failed, self._own_error_agreed = True, is_agreed
        self._say({"rank": self._rank, "kind": "failed", "what": f"failed: {one_line(error)}", "agreed": is_agreed})
        if not is_agreed:
            self._is_cleared.wait(self._silence_s + _AGREED_S)

    def _meet(self) -> None:
        """Accept the others, who connect now; one that does not come counts as silent later."""
        assert self._listener is not None
        until = time.monotonic() + _CONNECT_S
        while len(self._wires) < self._world_size - 1 and (left := until - time.monotonic()) > 0:
            self._listener.settimeout(left)
            with suppress(TimeoutError):
                self._accept(time.monotonic())
        self._listener.settimeout(None)
        if len(self._wires) == self._world_size - 1:
            # Whoever else connects is no rank of ours, and would only be waited for.
            self._selector.unregister(self._listener)
            self._listener.close()

    def _say(self, line: Line) -> None:
        with self._lock:
            if self._rank == 0:
                self._take(line)
                if line.get("agreed") or line["kind"] == "changed":
                    # The process may be over before a verdict is due.
                    self._tell(line)
            elif 0 in self._wires:
                self._wires[0].send(line)
        self._wake_writer.send(b"\0")

    def _peers(self) -> list[int]:
        return list(range(1, self._world_size)) if self._rank == 0 else [0]

    def _add(self, rank: int, wire: Wire) -> None:
        self._wires[rank] = wire
        self._selector.register(wire.socket, EVENT_READ, rank)

    def _run(self) -> None:
        before = beat_at = time.monotonic()
        while not self._is_closing.is_set():
            ready = self._selector.select(BEAT_S / 4)
            now = time.monotonic()
            with self._lock:
                gap, before = now - before, now
                if gap > BEAT_S:
                    # Stopped, and its main thread with it: that is not to stand at one place.
                    self._place_since += gap
                if self._world_size > 1 and gap > self._silence_s - 2 * BEAT_S:
                    # The others have given this process up, counting from its last beat, and gone on without it.
                    self._suspicion.settle(self._verdict_on(self._rank, "silent", f"was stopped for {gap:.0f} s"))
                    ready = []
                for key, _ in ready:
                    self._read(key.fileobj, key.data, now)
                if now >= beat_at:
                    beat_at = now + BEAT_S
                    self._tell({"beat": self._rank})
                    if gap < BEAT_S:  # else what has come since then is yet to be read
                        self._judge(now)
                verdict = self._verdict(now)
            if verdict is not None:
                self._on_loss(verdict)
        with self._lock:
            self._tell({"bye": self._rank})

    def _tell(self, line: Line) -> None:
        for wire in self._wires.values():
            wire.send(line)

    def _read(self, channel: object, rank: int | None, now: float) -> None:
        if channel is self._wake_reader:
            self._wake_reader.recv(64)
        elif channel is self._listener:
            self._accept(now)
        elif rank is not None:
            lines = self._wires[rank].receive()
            self._heard_at[rank] = now
            for line in lines or []:
                self._take(line)
            if lines is None:
                self._lose(rank)

    def _accept(self, now: float) -> None:
        assert self._listener is not None
        connection, _ = self._listener.accept()
        wire = Wire(connection)
        hello, *others = wire.first_lines() or [{}]
        rank = hello.get("rank")
        if hello.get("token") != self._token or not isinstance(rank, int):
            wire.close()
            return
        self._heard_at[rank] = now
        self._add(rank, wire)
        for line in others:
            self._take(line)

    def _lose(self, rank: int) -> None:
        wire = self._wires.pop(rank)
        self._selector.unregister(wire.socket)
        wire.close()
        if rank not in self._done:
            self._suspects(rank, "gone", "went away", wait_s=_WINDOW_S)

    def _take(self, line: Line) -> None:
        if "bye" in line:
            self._done.add(line["bye"])
        elif line.get("is_final"):
            self._suspicion.settle(self._verdict_on(line["rank"], line["kind"], line["what"]))
        elif "kind" in line:
            self._done.add(line["rank"])
            wait_s = _AGREED_S if line.get("agreed") else _WINDOW_S
            self._suspects(line["rank"], line["kind"], line["what"], wait_s=wait_s)

    def _judge(self, now: float) -> None:
        for rank in self._peers():
            silence = now - self._heard_at[rank]
            if rank not in self._done and silence > self._silence_s:
                self._suspects(rank, "silent", f"was not heard of for {silence:.0f} s", wait_s=0.0)
        if self._is_in_loop:
            place, told = main_thread_place()
            if place != self._place:
                self._place, self._place_since = place, now
            elif now - self._place_since > STUCK_S:
                self._suspects(self._rank, "silent", f"was stuck for {STUCK_S:.0f} s in {told}", wait_s=0.0)

    def _suspects(self, rank: int, kind: str, what: str, *, wait_s: float) -> None:
        is_cause = self._suspicion.add(self._verdict_on(rank, kind, what), time.monotonic(), wait_s)
        if is_cause and rank == self._rank and 0 in self._wires:
            self._wires[0].send({"rank": rank, "kind": kind, "what": what})

    def _verdict_on(self, rank: int, kind: str, what: str) -> Verdict:
        return Verdict(rank, departure(kind, f"rank {rank} on {self._hosts.get(rank, self._host)}", what))

    def _verdict(self, now: float) -> Verdict | None:
        """Return the verdict once, when it is time and it is for the watch to end this process."""
        verdict = self._suspicion.cause
        if verdict is None or self._is_decided or self._own_error_agreed or not self._suspicion.is_due(now):
            return None
        self._is_decided = True
        cause = verdict.departure
        if self._rank == 0:
            self._tell({"rank": verdict.rank, "kind": cause.kind, "what": cause.what, "is_final": True})
        if verdict.rank == self._rank and cause.kind in ("failed", "changed"):
            self._is_cleared.set()
            return None
        return verdict
