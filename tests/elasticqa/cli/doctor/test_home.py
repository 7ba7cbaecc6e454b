"""The home directory on writable, read-only and full file systems."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from elasticqa.cli.doctor.home import (
    LITTLE_SPACE,
    NO_SPACE,
    check,
    check_clock,
    check_file_system,
    check_locks,
    check_space,
)
from tests.support.processes import run

MOUNTS = """22 1 254:0 / / rw shared:1 - ext4 /dev/vda rw
30 22 0:40 / /home rw shared:9 - nfs4 server:/home rw
31 22 0:41 / /memory rw - tmpfs tmpfs rw"""
PROGRAM = """
import os; from elasticqa.cli.doctor.home import check; [print(f.status, f.check, f.found) for f in check(os.environ)]
"""


def test_good_home_passes_every_check_and_stays_empty(tmp_path: Path) -> None:
    findings = check({"ELASTICQA_HOME": str(tmp_path / "home"), "PATH": ""})
    assert {finding.check for finding in findings} == {"home", "space", "locks", "clock"}
    assert not [finding for finding in findings if finding.status == "fail"]
    assert list((tmp_path / "home").iterdir()) == []


def test_home_below_a_file_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (finding,) = check({"ELASTICQA_HOME": str(tmp_path / "file" / "home")})
    assert finding.status == "fail"
    assert "cannot be created" in finding.found


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="without /proc root can write everywhere")
def test_unwritable_directory_fails() -> None:
    (finding,) = check({"ELASTICQA_HOME": "/proc/self"})
    assert finding.status == "fail"
    assert "/proc/self" in finding.found


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="only root can mount")
@pytest.mark.parametrize(
    ("options", "expected"),
    [("ro", "fail home"), ("size=4k,nr_inodes=1", "No space left on device"), ("size=8m", "fail space 0.0 GB free")],
)
def test_read_only_and_full_file_systems_fail(options: str, expected: str, tmp_path: Path) -> None:
    script = f'mount -t tmpfs -o {options} tmpfs {tmp_path} && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-c", PROGRAM]
    done = run(*command, env={**os.environ, "ELASTICQA_HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout


@pytest.mark.parametrize(
    ("path", "has_slurm", "status", "expected"),
    [
        ("/var/home", False, "ok", "ext4"),
        ("/var/home", True, "warn", "only this machine sees"),
        ("/home/ann", True, "ok", "nfs4, which other machines can mount"),
        ("/memory/home", False, "warn", "in memory"),
    ],
)
def test_file_system_decides_who_sees_the_home(path: str, has_slurm: bool, status: str, expected: str) -> None:
    finding = check_file_system(Path(path), MOUNTS, has_slurm=has_slurm)
    assert finding.status == status
    assert expected in finding.found


@pytest.mark.parametrize(("free", "status"), [(LITTLE_SPACE, "ok"), (LITTLE_SPACE - 1, "warn"), (NO_SPACE - 1, "fail")])
def test_space_must_suffice_for_a_run(free: int, status: str) -> None:
    assert check_space(Path("/home"), free).status == status


def test_locks_of_a_local_disk_work(tmp_path: Path) -> None:
    assert check_locks(tmp_path).status == "ok"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("skew_s", "status"), [(0.0, "ok"), (4.9, "ok"), (-90.0, "warn")])
def test_clock_may_differ_from_the_file_server_by_seconds(skew_s: float, status: str) -> None:
    assert check_clock(skew_s).status == status
