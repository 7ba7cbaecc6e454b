"""Shared memory, and resource limits that make runs fail in confusing ways."""

import os
import resource
from collections.abc import Mapping
from pathlib import Path

from elasticqa.cli.doctor.finding import Finding, fail, ok, warn

MIN_SHARED_MEMORY = 2**30
"""Bytes; NCCL's buffers on a node with eight GPUs take most of it."""
_MIN_FREE = 64 * 2**20
_MINIMUM = {
    "RLIMIT_NOFILE": (1024, "open files", "ulimit -n 4096"),
    "RLIMIT_NPROC": (4096, "processes and threads", "ulimit -u 16384"),
    "RLIMIT_AS": (2**36, "bytes of address space", "ulimit -v unlimited"),
    "RLIMIT_CPU": (604_800, "seconds of CPU time", "ulimit -t unlimited, or train in a job, not on a login node"),
    "RLIMIT_MEMLOCK": (
        2**30,
        "bytes of locked memory",
        "ulimit -l unlimited; on Slurm PropagateResourceLimitsExcept=MEMLOCK",
    ),
}


def check(_: Mapping[str, str]) -> list[Finding]:
    """Check /dev/shm and the limits of this process."""
    limits = {name: resource.getrlimit(getattr(resource, name))[0] for name in _MINIMUM}
    has_infiniband = any(Path("/sys/class/infiniband").glob("*"))
    return [check_shared_memory(Path("/dev/shm")), *check_limits(limits, has_infiniband=has_infiniband)]


def check_shared_memory(path: Path) -> Finding:
    """Return whether processes of a node can use shared memory."""
    if not os.access(path, os.W_OK | os.X_OK):
        return fail("shm", f"{path} cannot be written", f"mount a tmpfs there: mount -t tmpfs -o size=8g tmpfs {path}")
    status = os.statvfs(path)
    return judge_shared_memory(path, status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)


def judge_shared_memory(path: Path, total: int, free: int) -> Finding:
    """Return the finding for a size of shared memory in bytes."""
    found = f"{path} has {total / 2**20:,.0f} MiB, {free / 2**20:,.0f} free"
    if total < MIN_SHARED_MEMORY:
        advice = f"give it 1 GiB or more: --shm-size=8g for a container, or mount -o remount,size=8g {path}"
        return warn("shm", found, advice)
    if free < _MIN_FREE:
        return warn("shm", found, f"killed jobs may have left files there: check ls -l {path}")
    return ok("shm", found)


def check_limits(limits: Mapping[str, int], *, has_infiniband: bool) -> list[Finding]:
    """Return the soft limits that are too low; InfiniBand's driver alone needs locked memory."""
    findings = [
        warn("limits", f"at most {limits[name]:,} {what}; at least {minimum:,} are needed", advice)
        for name, (minimum, what, advice) in _MINIMUM.items()
        if (name != "RLIMIT_MEMLOCK" or has_infiniband) and resource.RLIM_INFINITY != limits[name] < minimum
    ]
    return findings or [ok("limits", f"{limits['RLIMIT_NOFILE']:,} open files; no other limit is too low")]
