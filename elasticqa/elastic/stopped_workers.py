"""Detects workers that are stopped (SIGSTOP); one that is slow or waits is never reported."""

from collections.abc import Iterable

import psutil

POLL_S = 1.0


class StoppedWorkerDetector:
    """Polls the states of processes; a traced process (debugger) has another state and does not count as stopped."""

    def __init__(self, limit_s: float) -> None:
        """Prepare.

        Args:
            limit_s: a process that is stopped for longer is reported.
        """
        self._limit_s = limit_s
        self._polled_at = 0.0
        self._stopped: dict[int, tuple[float, float]] = {}
        """Process id -> CPU seconds used, and the time of the first poll that found it stopped at this value."""

    def find(self, pids: Iterable[int], now: float) -> dict[int, float]:
        """Return the processes that have been stopped for longer than the limit, with the seconds; each once.

        Calls within ``POLL_S`` of the last poll return nothing.

        Args:
            pids: of processes that the caller has not reaped; those that have ended are left out.
            now: seconds of a monotonic clock.
        """
        gap = now - self._polled_at
        if gap < POLL_S:
            return {}
        if gap > self._limit_s / 2:
            # The caller may have been stopped itself, as when a scheduler suspends the whole job.
            self._stopped.clear()
        self._polled_at = now
        before, self._stopped = self._stopped, {}
        for pid in pids:
            used_s = _cpu_seconds_if_stopped(pid)
            if used_s is None:
                continue
            used_before_s, since = before.get(pid, (used_s, now))
            # Tools that limit CPU use stop and continue a process in turn: if it used CPU since the last poll, it is
            # not stopped.
            self._stopped[pid] = (used_s, since if used_s == used_before_s else now)
        found = {pid: now - since for pid, (_, since) in self._stopped.items() if now - since > self._limit_s}
        for pid in found:
            del self._stopped[pid]
        return found


def _cpu_seconds_if_stopped(pid: int) -> float | None:
    """Return the CPU seconds that a stopped process has used; None if it is not stopped."""
    try:
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_STOPPED:
            return None
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return None
    return float(times.user + times.system)
