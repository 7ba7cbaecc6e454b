"""Which processes of this machine stand stopped (SIGSTOP): one that is slow, or waits, is never taken for one."""

from collections.abc import Iterable

import psutil

LOOK_S = 1.0


class Standstill:
    """Looks at the states that the system knows processes to be in; that of one under a debugger is another."""

    def __init__(self, limit_s: float) -> None:
        """Prepare.

        Args:
            limit_s: stopped for longer than this a process is told of.
        """
        self._limit_s = limit_s
        self._looked_at = 0.0
        self._since: dict[int, tuple[float, float]] = {}

    def over(self, pids: Iterable[int], now: float) -> dict[int, float]:
        """Return which of the processes have stood stopped for longer than the limit, and for how many seconds.

        Each is told once; calls that come sooner than `LOOK_S` after the last look find nothing.

        Args:
            pids: of processes that the caller has not reaped; those that have ended are left out.
            now: seconds of a monotonic clock.
        """
        gap = now - self._looked_at
        if gap < LOOK_S:
            return {}
        if gap > self._limit_s / 2:
            # Whoever looks may have been stopped itself, as all of them are by a scheduler that suspends a job.
            self._since.clear()
        self._looked_at = now
        before, self._since = self._since, {}
        for pid in pids:
            used_s = _used_by_stopped(pid)
            if used_s is None:
                continue
            used_before_s, since = before.get(pid, (used_s, now))
            # What limits a process to a share of a CPU stops it over and over again: it has run in between.
            self._since[pid] = (used_s, since if used_s == used_before_s else now)
        told = {pid: now - since for pid, (_, since) in self._since.items() if now - since > self._limit_s}
        for pid in told:
            del self._since[pid]
        return told


def _used_by_stopped(pid: int) -> float | None:
    """Return the seconds of CPU time that a process has used which stands stopped; None of any other."""
    try:
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_STOPPED:
            return None
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return None
    return float(times.user + times.system)
