"""The home directory: can it be written, is there room, who else sees it, how well does it lock and sync."""

import fcntl
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from db.storage.home import MOUNTS, SHARED_FILE_SYSTEMS, file_system_of
from elasticqa.cli.doctor.finding import Finding, fail, ok, warn
from elasticqa.cli.doctor.slurm import is_configured
from elasticqa.run.home import HomeError, home

LITTLE_SPACE = 10 * 10**9
"""Bytes: three checkpoints of BERT-base with its optimizer take 4 GB, features and models 1 GB."""
NO_SPACE = 10**9
SLOW_SYNC_S = 0.2
_NUM_SYNCS = 15
_SYNC_LIMIT_S = 5.0


def check(environ: Mapping[str, str]) -> list[Finding]:
    """Check the home directory, which is created where it is missing."""
    try:
        path = home(environ)
    except HomeError as error:
        return [fail("home", str(error), "set ELASTICQA_HOME to a directory that you can write")]
    unwritable = check_writable(path)
    if unwritable is not None:
        return [unwritable]
    usage = shutil.disk_usage(path)
    return [
        check_kind(path, MOUNTS.read_text() if MOUNTS.exists() else "", has_slurm=is_configured(environ)),
        check_space(path, usage.free),
        check_locks(path),
        check_sync(path),
    ]


def check_writable(path: Path) -> Finding | None:
    """Return the failure to write a file and a directory in ``path``, or None."""
    try:
        with tempfile.TemporaryDirectory(dir=path, prefix=".doctor-") as folder:
            (Path(folder) / "file").write_bytes(b"x")
    except OSError as error:
        advice = "set ELASTICQA_HOME to a directory that you can write, on a disk that is not full"
        return fail("home", f"{path} cannot be written ({error.strerror})", advice)
    return None


def check_kind(path: Path, mounts: str, *, has_slurm: bool) -> Finding:
    """Return whether the machines that need the home directory see it.

    Args:
        path: of the home directory.
        mounts: text of `/proc/self/mountinfo`.
        has_slurm: jobs will run on other machines.
    """
    kind = file_system_of(path, mounts)
    if kind in SHARED_FILE_SYSTEMS:
        return ok("home", f"{path} is writable, on {kind}, which other machines can mount")
    found = f"{path} is writable, on {kind or 'an unknown file system'}, which only this machine sees"
    if has_slurm:
        return warn("home", found, "set ELASTICQA_HOME to a directory that all nodes of the cluster mount")
    if kind in ("tmpfs", "ramfs"):
        return warn("home", f"{found}, in memory", "set ELASTICQA_HOME to a disk: runs are lost with the next restart")
    return ok("home", found)


def check_space(path: Path, free: int) -> Finding:
    """Return whether checkpoints fit; ``free`` is in bytes."""
    found = f"{free / 1e9:,.1f} GB free"
    advice = f"a run of BERT-base takes about 5 GB: make room in {path}, or set ELASTICQA_HOME to a larger disk"
    if free < NO_SPACE:
        return fail("space", found, advice)
    return warn("space", found, advice) if free < LITTLE_SPACE else ok("space", found)


def check_locks(path: Path) -> Finding:
    """Return whether a second process would notice that a run is being worked for."""
    with tempfile.NamedTemporaryFile(dir=path, prefix=".doctor-") as first, Path(first.name).open("rb") as second:
        try:
            fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return ok("locks", "flock keeps two starts out of one run")
        except OSError as error:
            found = f"flock does not work ({error.strerror})"
        else:
            found = "flock lets two holders in"
    advice = "start a run once at a time, or mount the file system with locks (nfs: without nolock; lustre: flock)"
    return warn("locks", found, advice)


def check_sync(path: Path) -> Finding:
    """Return how long it takes until a line of the journal is safe."""
    times: list[float] = []
    begin = time.perf_counter()
    with tempfile.TemporaryFile(dir=path) as file:
        while len(times) < _NUM_SYNCS and time.perf_counter() - begin < _SYNC_LIMIT_S:
            start = time.perf_counter()
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - start)
    return judge_sync(statistics.median(times))


def judge_sync(median_s: float) -> Finding:
    """Return the finding on the median time of an fsync."""
    found = f"fsync takes {median_s * 1000:,.1f} ms"
    if median_s > SLOW_SYNC_S:
        advice = "journal lines become safe late and checkpoints take longer: prefer another file system for the home"
        return warn("fsync", found, advice)
    return ok("fsync", found)
