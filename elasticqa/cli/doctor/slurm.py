"""Slurm, if it is installed: does it answer, and can jobs be submitted."""

import shutil
import subprocess
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
    """A Slurm command failed; the message is its first line of output."""


def check(environ: Mapping[str, str]) -> list[Finding]:
    """Check the Slurm installation on PATH."""
    if shutil.which("sbatch", path=environ.get("PATH")) is None:
        return [ok("slurm", "no sbatch on PATH: runs start on this machine, torchx run -s local_cwd")]
    if not is_configured(environ):
        advice = "set SLURM_CONF to the cluster's slurm.conf if this machine is to submit jobs"
        return [warn("slurm", "Slurm's commands are installed, but no cluster is configured", advice)]
    missing = [name for name in _COMMANDS if shutil.which(name, path=environ.get("PATH")) is None]
    if missing:
        found = f"sbatch is on PATH, but not {', '.join(missing)}"
        return [fail("slurm", found, "install Slurm's client commands, or load its environment module")]
    try:
        version = output(["sbatch", "--version"], environ)
        lines = output(["sinfo", "--noheader", "--format=%P|%a"], environ).split()
    except SlurmError as error:
        advice = "check with `scontrol ping` that slurmctld runs and that SLURM_CONF names its configuration"
        return [fail("slurm", str(error), advice)]
    up = dict.fromkeys(line.removesuffix("|up") for line in lines if line.endswith("|up"))
    return [check_partitions(version, list(up))]


def is_configured(environ: Mapping[str, str], configurations: Iterable[Path] = _CONFIGURATIONS) -> bool:
    """Return whether Slurm's commands are on PATH and configured for a cluster."""
    if shutil.which("sbatch", path=environ.get("PATH")) is None:
        return False
    return bool(environ.get("SLURM_CONF")) or any(path.is_file() for path in configurations)


def check_partitions(version: str, names: Sequence[str]) -> Finding:
    """Return whether a job can be submitted without naming a partition; a star marks the default one."""
    if not names:
        return fail("slurm", f"{version}: no partition is up", "check sinfo, and ask the administrators")
    found = f"{version}, partitions: {', '.join(names)}"
    if not any(name.endswith("*") for name in names):
        advice = "choose one: partition = NAME under [slurm] in .torchxconfig"
        return warn("slurm", f"{found}; none is the default", advice)
    return ok("slurm", found)


def output(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the output of a Slurm command.

    Raises:
        SlurmError: it is missing, hangs or fails.
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
        message = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()[0]
        raise SlurmError(f"{command[0]}: {message}")
    return done.stdout.strip()
