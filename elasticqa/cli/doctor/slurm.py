"""Slurm, where there is one: does it answer, can jobs be sent to it, and are their ends remembered."""

import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from elasticqa.cli.doctor.finding import Finding, fail, ok, warn

TIMEOUT_S = 10
_COMMANDS = ("sbatch", "sinfo", "squeue", "scancel", "scontrol")
_CONFIGURATIONS = (
    Path("/etc/slurm/slurm.conf"),
    Path("/etc/slurm-llnl/slurm.conf"),
    Path("/run/slurm/conf/slurm.conf"),
)


class SlurmError(RuntimeError):
    """A command of Slurm that failed; the message is its first line."""


def check(environ: Mapping[str, str]) -> list[Finding]:
    """Check the Slurm whose commands are on PATH."""
    if shutil.which("sbatch", path=environ.get("PATH")) is None:
        return [ok("slurm", "no sbatch on PATH: runs start on this machine, torchx run -s local_cwd")]
    if not is_configured(environ):
        advice = "set SLURM_CONF to the cluster's slurm.conf, if jobs are to be sent from here"
        return [warn("slurm", "its commands are installed, but no cluster is configured", advice)]
    missing = [name for name in _COMMANDS if shutil.which(name, path=environ.get("PATH")) is None]
    if missing:
        found = f"sbatch is there, but not {', '.join(missing)}"
        return [fail("slurm", found, "install Slurm's client commands, or load its module")]
    try:
        version = output(["sbatch", "--version"], environ)
        lines = output(["sinfo", "--noheader", "--format=%P|%a|%D|%G"], environ).splitlines()
    except SlurmError as error:
        advice = "see that slurmctld runs and SLURM_CONF names its configuration: scontrol ping"
        return [fail("slurm", str(error), advice)]
    return [check_partitions(version, lines), check_accounting(environ)]


def is_configured(environ: Mapping[str, str], configurations: Iterable[Path] = _CONFIGURATIONS) -> bool:
    """Return whether Slurm's commands are on PATH and have been told of a cluster."""
    if shutil.which("sbatch", path=environ.get("PATH")) is None:
        return False
    return bool(environ.get("SLURM_CONF")) or any(path.is_file() for path in configurations)


def check_partitions(version: str, lines: Sequence[str]) -> Finding:
    """Return whether a job can be sent without naming a partition.

    Args:
        version: what `sbatch --version` says.
        lines: of `sinfo`: name (a star marks the default), availability, nodes, generic resources; a partition may
            have several.
    """
    nodes: Counter[str] = Counter()
    has_gpus = False
    for line in lines:
        name, availability, count, resources = line.strip().split("|")
        if availability == "up":
            nodes[name] += int(count)
            has_gpus = has_gpus or "gpu" in resources
    if not nodes.total():
        return fail("slurm", f"{version}: no partition is up and has nodes", "ask who runs the cluster: sinfo")
    listed = ", ".join(f"{name} ({count} nodes)" for name, count in nodes.items())
    found = f"{version}, {listed}, {'with' if has_gpus else 'without'} GPUs as generic resources"
    if not any(name.endswith("*") for name in nodes):
        return warn(
            "slurm", f"{found}; none is the default", "name one: partition = NAME under [slurm] in .torchxconfig"
        )
    return ok("slurm", found)


def check_accounting(environ: Mapping[str, str]) -> Finding:
    """Return whether the end of a job can be looked up when it has left the queue."""
    try:
        output(["sacct", "--noheader", "--allocations", "--format=JobID"], environ)
    except SlurmError as error:
        advice = "runs are recorded all the same (elasticqa runs); for torchx status of ended jobs, set up slurmdbd"
        return warn("slurm", f"no accounting: {error}", advice)
    return ok("slurm", "accounting answers")


def output(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return what a command of Slurm prints.

    Raises:
        SlurmError: it is not there, does not answer, or fails.
    """
    program = shutil.which(command[0], path=environ.get("PATH"))
    if program is None:
        raise SlurmError(f"{command[0]} is not on PATH")
    try:
        done = subprocess.run(
            [program, *command[1:]], capture_output=True, text=True, check=False, timeout=TIMEOUT_S, env=dict(environ)
        )
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{command[0]} does not answer within {TIMEOUT_S} s") from None
    except OSError as error:
        raise SlurmError(f"{command[0]} cannot be run ({error.strerror})") from error
    if done.returncode != 0:
        complaint = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()[0]
        raise SlurmError(f"{command[0]}: {complaint}")
    return done.stdout.strip()
