"""The home directory: is it writable, large enough and shared, and do its locks and its clock work."""

import fcntl
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from db.storage.home import SHARED_FILE_SYSTEMS, file_system_of, mounted
from elasticqa.cli.doctor.finding import Finding, fail, ok, warn
from elasticqa.cli.doctor.slurm import is_configured
from elasticqa.errors import ConfigError
from elasticqa.run.home import home

LITTLE_SPACE = 10 * 10**9
"""Bytes: three checkpoints of BERT-base with its optimizer take 4 GB, features and models 1 GB."""
NO_SPACE = 10**9
MAX_CLOCK_SKEW_S = 5.0


def check(environ: Mapping[str, str]) -> list[Finding]:
    """Check the home directory, which is created if it does not exist."""
    try:
        path = home(environ)
    except ConfigError as error:
        return [fail("home", str(error), "set ELASTICQA_HOME to a directory that you can write")]
    try:
        with tempfile.NamedTemporaryFile(dir=path, prefix=".doctor-") as file:
            file.write(b"x")
            file.flush()
            clock_skew_s = Path(file.name).stat().st_mtime - time.time()
    except OSError as error:
        advice = "set ELASTICQA_HOME to a directory that you can write, on a disk that is not full"
        return [fail("home", f"{path} cannot be written ({error.strerror})", advice)]
    return [
        check_file_system(path, mounted(), has_slurm=is_configured(environ)),
        check_space(path, shutil.disk_usage(path).free),
        check_locks(path),
        check_clock(clock_skew_s),
    ]


def check_file_system(path: Path, mounts: str, *, has_slurm: bool) -> Finding:
    """Return whether all machines that need the home directory can see it; ``mounts`` is `/proc/self/mountinfo`."""
    kind = file_system_of(path, mounts)
    if kind in SHARED_FILE_SYSTEMS:
        return ok("home", f"{path} is writable, on {kind}, which other machines can mount")
    found = f"{path} is writable, on {kind or 'an unknown file system'}, which only this machine sees"
    if has_slurm:
        return warn("home", found, "set ELASTICQA_HOME to a directory that all nodes of the cluster mount")
    if kind in ("tmpfs", "ramfs"):
        return warn("home", f"{found}, in memory", "set ELASTICQA_HOME to a disk: a restart deletes all runs")
    return ok("home", found)


def check_space(path: Path, free: int) -> Finding:
    """Return whether checkpoints fit; ``free`` is in bytes."""
    found = f"{free / 1e9:,.1f} GB free"
    advice = f"a run of BERT-base takes about 5 GB: free space in {path}, or set ELASTICQA_HOME to a larger disk"
    if free < NO_SPACE:
        return fail("space", found, advice)
    return warn("space", found, advice) if free < LITTLE_SPACE else ok("space", found)


def check_locks(path: Path) -> Finding:
    """Return whether flock works, which keeps two process groups from training one run."""
    with tempfile.NamedTemporaryFile(dir=path, prefix=".doctor-") as first, Path(first.name).open("rb") as second:
        try:
            fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return ok("locks", "flock works: a run cannot be started twice at once")
        except OSError as error:
            found = f"flock does not work ({error.strerror})"
        else:
            found = "flock lets two processes hold one lock"
    advice = "never start a run twice at once, or mount the file system with locks (nfs: without nolock; lustre: flock)"
    return warn("locks", found, advice)


def check_clock(skew_s: float) -> Finding:
    """Return whether this machine's clock agrees with the file server's.

    The status of a run is `lost` if the times of its lines are too old.
    """
    if abs(skew_s) > MAX_CLOCK_SKEW_S:
        advice = "synchronize the clocks of all machines (systemd-timesyncd, chrony)"
        return warn("clock", f"the clock of the home directory's server differs by {skew_s:+.0f} s", advice)
    return ok("clock", "agrees with that of the home directory's server")
