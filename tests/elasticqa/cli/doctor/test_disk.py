"""The home directory on real file systems: writable, read-only and full ones."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from elasticqa.cli.doctor.disk import (
    LITTLE_SPACE,
    NO_SPACE,
    check,
    check_kind,
    check_locks,
    check_space,
    check_sync,
    check_writable,
    judge_sync,
)
from tests.support.processes import run

MOUNTS = """22 1 254:0 / / rw shared:1 - ext4 /dev/vda rw
30 22 0:40 / /home rw shared:9 - nfs4 server:/home rw
31 22 0:41 / /memory rw - tmpfs tmpfs rw"""
PROGRAM = """
import os; from elasticqa.cli.doctor.disk import check; [print(f.status, f.check, f.found) for f in check(os.environ)]
"""


def test_good_home_passes_every_check_and_nothing_is_left_in_it(tmp_path: Path) -> None:
    findings = check({"ELASTICQA_HOME": str(tmp_path / "home"), "PATH": ""})
    assert {finding.check for finding in findings} == {"home", "space", "locks", "fsync"}
    assert not [finding for finding in findings if finding.status == "fail"]
    assert list((tmp_path / "home").iterdir()) == []


def test_home_below_a_file_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (finding,) = check({"ELASTICQA_HOME": str(tmp_path / "file" / "home")})
    assert finding.status == "fail"
    assert "cannot be created" in finding.found


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="no /proc: nowhere that even root cannot write")
def test_directory_that_nobody_can_write_fails() -> None:
    finding = check_writable(Path("/proc/self"))
    assert finding is not None
    assert finding.status == "fail"
    assert "/proc/self cannot be written" in finding.found


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
def test_kind_of_file_system_decides_who_sees_the_home(path: str, has_slurm: bool, status: str, expected: str) -> None:
    finding = check_kind(Path(path), MOUNTS, has_slurm=has_slurm)
    assert finding.status == status
    assert expected in finding.found


@pytest.mark.parametrize(("free", "status"), [(LITTLE_SPACE, "ok"), (LITTLE_SPACE - 1, "warn"), (NO_SPACE - 1, "fail")])
def test_space_is_judged_by_what_a_run_takes(free: int, status: str) -> None:
    assert check_space(Path("/home"), free).status == status


def test_locks_and_syncs_are_tried_for_real(tmp_path: Path) -> None:
    assert check_locks(tmp_path).status == "ok"
    assert check_sync(tmp_path).found.startswith("fsync takes ")
    assert list(tmp_path.iterdir()) == []


def test_slow_sync_is_told() -> None:
    assert judge_sync(0.001).status == "ok"
    assert judge_sync(0.5).found == "fsync takes 500.0 ms"
    assert judge_sync(0.5).status == "warn"
