"""The clock: runs of several machines are put in order by it, and a run whose lines look old counts as lost."""

import ctypes
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from elasticqa.cli.doctor.finding import Finding, fail, ok, warn
from elasticqa.run.home import HomeError, home

LARGEST_SKEW_S = 5.0
_TIME_ERROR = 5


def check(environ: Mapping[str, str]) -> list[Finding]:
    """Compare this machine's clock with that of the home directory's file server."""
    try:
        with tempfile.NamedTemporaryFile(dir=home(environ), prefix=".doctor-") as file:
            skew = Path(file.name).stat().st_mtime - time.time()
    except (HomeError, OSError):
        skew = 0.0  # said by the check of the home directory
    return [check_clock(time.time(), Path(__file__).stat().st_mtime, skew, is_synchronized=_is_synchronized())]


def check_clock(now: float, installed_at: float, skew_s: float, *, is_synchronized: bool | None) -> Finding:
    """Return whether times of this machine can be compared with those of others.

    Args:
        now: Unix time.
        installed_at: Unix time when this program was installed.
        skew_s: how far the file server's clock is ahead.
        is_synchronized: whether the system keeps the clock to a reference, or None where that is unknown.
    """
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    advice = "synchronize the clock (systemd-timesyncd, chrony), on every machine"
    if now < installed_at - 86_400:
        return fail("clock", f"it is {shown}, before this program was installed", advice)
    if abs(skew_s) > LARGEST_SKEW_S:
        return warn("clock", f"{shown}; the home directory's server is {skew_s:+.0f} s off", advice)
    if is_synchronized is False:
        return warn("clock", f"{shown}, kept to no reference", advice)
    return ok("clock", f"{shown}{', synchronized' if is_synchronized else ''}")


def _is_synchronized() -> bool | None:
    """Return what Linux says of its clock; None on other systems."""
    try:
        adjtimex = ctypes.CDLL(None).adjtimex
    except (AttributeError, OSError):
        return None
    # `struct timex` of any architecture fits; all zeros ask without changing anything.
    state = adjtimex(ctypes.create_string_buffer(1024))
    return None if state < 0 else bool(state != _TIME_ERROR)
