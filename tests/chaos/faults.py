"""Faults of a run: in its processes, its checkpoints, its disk and its database."""

import contextlib
import errno
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from elasticqa.checkpoint.manifest import MANIFEST, checkpoint_directories
from tests.chaos.job import ChaosJob, Node, kill
from tests.chaos.schedule import Event
from tests.support import training
from tests.support.paths import REPOSITORY
from tests.support.processes import until

_QUIET_S = 0.5
"""A run that has printed nothing for so long waits for the stopped rank."""


class NoWorkerError(Exception):
    """There is no worker at this moment: nodes are in the rendezvous, or none is left."""


class Faults:
    """Inflicts the events of one schedule on one job."""

    def __init__(self, job: ChaosJob, home: Path) -> None:
        self._job = job
        self._home = home
        self._database = home / "elasticqa.db"
        self._holder: sqlite3.Connection | None = None
        self.is_database_away = False
        self.damaged: list[str] = []
        """Names of the checkpoints that were damaged."""

    def inflict(self, event: Event) -> None:
        """Inflict an event, and return when it is done.

        Raises:
            NoWorkerError: nothing has been done.
        """
        getattr(self, f"_{event.kind}")(event)

    def unlock_database(self) -> None:
        """Unlock the database."""
        if self._holder is not None:
            self._holder.close()
            self._holder = None
            self.is_database_away = False

    def restore_database(self) -> None:
        """Undo what was done to the database."""
        self.unlock_database()
        if self.is_database_away:
            shutil.rmtree(self._database)
            self.is_database_away = False

    def _node(self, event: Event) -> Node:
        nodes = self._job.live()
        return nodes[event.node % len(nodes)]

    def _worker(self, event: Event) -> psutil.Process:
        """Return a worker: of the event's node if it has one, else of the next."""
        nodes = self._job.live()
        ordered = [nodes[(event.node + shift) % len(nodes)] for shift in range(len(nodes))]
        workers = [each for node in ordered for each in self._job.workers(node)]
        if not workers:
            raise NoWorkerError
        return workers[0]

    def _kill_worker(self, event: Event) -> None:
        kill(self._worker(event).pid)

    def _kill_agent(self, event: Event) -> None:
        kill(self._node(event).pid)

    def _kill_node(self, event: Event) -> None:
        node = self._node(event)
        kill(node.pid, *(worker.pid for worker in self._job.workers(node)))

    def _terminate_worker(self, event: Event) -> None:
        kill(self._worker(event).pid, number=signal.SIGTERM)

    def _terminate_agent(self, event: Event) -> None:
        kill(self._node(event).pid, number=signal.SIGTERM)

    _leave = _terminate_agent

    def _join(self, _: Event) -> None:
        self._job.start_nodes(1)

    def _stop_worker(self, event: Event) -> None:
        kill(self._worker(event).pid, number=signal.SIGSTOP)

    def _pause_worker(self, event: Event) -> None:
        worker = self._worker(event)
        kill(worker.pid, number=signal.SIGSTOP)
        sizes, since = self._job.output_sizes(), time.monotonic()
        while time.monotonic() - since < _QUIET_S:
            if self._job.output_sizes() != sizes:
                sizes, since = self._job.output_sizes(), time.monotonic()
            time.sleep(_QUIET_S / 10)
        kill(worker.pid, number=signal.SIGCONT)

    def _tear_checkpoint(self, event: Event) -> None:
        """Cut the largest file of the newest checkpoint, or its manifest, or remove one of them; then kill a worker."""
        self._damage(event, _cut if event.variant < 2 else Path.unlink)

    def _flip_checkpoint(self, event: Event) -> None:
        """Flip a bit in the middle of the newest checkpoint's largest file, or of its manifest; then kill a worker."""
        self._damage(event, _flip_bit)

    def _damage(self, event: Event, harm: Callable[[Path], object]) -> None:
        worker = self._worker(event)
        # Stopped first: else a newer checkpoint could be written meanwhile.
        kill(worker.pid, number=signal.SIGSTOP)
        found = checkpoint_directories(self._job.directory / "checkpoints")
        if found:
            with contextlib.suppress(FileNotFoundError):  # pruned at this moment
                files = sorted(found[0].iterdir(), key=lambda file: file.stat().st_size)
                harm(found[0] / MANIFEST if event.variant % 2 else files[-1])
                self.damaged.append(found[0].name)
        kill(worker.pid)

    def _fill_disk(self, _: Event) -> None:
        """Fill the file system of the record until a rank has printed that it cannot write; then free it."""
        since = self._job.output_sizes()
        filler = self._home / "filler"
        _fill(filler)
        try:
            until(
                lambda: self._job.has_printed(os.strerror(errno.ENOSPC), since),
                "a rank that prints that the disk is full",
            )
        finally:
            filler.unlink()

    def _lock_database(self, _: Event) -> None:
        """Keep the database locked until the training has ended."""
        if not self.is_database_away:
            self._holder = sqlite3.connect(self._database, isolation_level=None)
            self._holder.execute("BEGIN EXCLUSIVE")
            self.is_database_away = True

    def _remove_database(self, _: Event) -> None:
        if not self.is_database_away:
            for file in self._home.glob("elasticqa.db*"):
                file.unlink()

    def _break_database(self, event: Event) -> None:
        """Replace the database by a directory until the end of the run."""
        if not self.is_database_away:
            self._remove_database(event)
            self._database.mkdir()
            self.is_database_away = True

    def _kill_ingest(self, _: Event) -> None:
        """Kill an ingest once it has begun to write."""
        if self.is_database_away:
            return
        log = self._home / "elasticqa.db-wal"
        before = log.stat().st_mtime_ns if log.exists() else 0
        command = [sys.executable, "-m", "db.ingest"]
        with subprocess.Popen(
            command, cwd=REPOSITORY, env=training.environment(self._home), stdout=subprocess.DEVNULL
        ) as process:
            until(
                lambda: process.poll() is not None or (log.exists() and log.stat().st_mtime_ns != before),
                "an ingest that writes",
            )
            process.kill()


def _cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def _flip_bit(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.seek(file.stat().st_size // 2)
        (byte,) = opened.read(1)
        opened.seek(-1, os.SEEK_CUR)
        opened.write(bytes([byte ^ 1]))


def _fill(path: Path) -> None:
    """Fill a file system with one file."""
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        size = 1 << 20
        block = bytes(size)
        while size:
            try:
                os.write(descriptor, block[:size])
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                size //= 2
    finally:
        os.close(descriptor)
