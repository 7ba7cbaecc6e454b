"""Resource limits set by a shell, and given values."""

import resource
import sys
from pathlib import Path

import pytest

from elasticqa.cli.doctor.limits import check_limits, check_shared_memory, judge_shared_memory
from tests.support.processes import run

PROGRAM = "from elasticqa.cli.doctor.limits import check; [print(f.status, f.found) for f in check({})]"
WIDE = dict.fromkeys(
    ("RLIMIT_NOFILE", "RLIMIT_NPROC", "RLIMIT_AS", "RLIMIT_CPU", "RLIMIT_MEMLOCK"), resource.RLIM_INFINITY
)


def test_few_open_files_are_a_warning() -> None:
    done = run("sh", "-c", f'ulimit -n 200; exec {sys.executable} -c "{PROGRAM}"')
    assert "warn at most 200 open files" in done.stdout


def test_wide_limits_are_ok() -> None:
    assert [finding.status for finding in check_limits(WIDE, has_infiniband=True)] == ["ok"]


@pytest.mark.parametrize("name", [name for name in WIDE if name != "RLIMIT_MEMLOCK"])
def test_each_tight_limit_is_a_warning(name: str) -> None:
    (finding,) = check_limits(WIDE | {name: 100}, has_infiniband=False)
    assert finding.status == "warn"
    assert finding.found.startswith("at most 100 ")


def test_locked_memory_matters_with_infiniband_only() -> None:
    tight = WIDE | {"RLIMIT_MEMLOCK": 65_536}
    assert check_limits(tight, has_infiniband=False)[0].status == "ok"
    assert "locked memory" in check_limits(tight, has_infiniband=True)[0].found


def test_shared_memory_must_exist_and_be_large_enough(tmp_path: Path) -> None:
    assert check_shared_memory(tmp_path / "absent").status == "fail"
    assert judge_shared_memory(tmp_path, 64 * 2**20, 64 * 2**20).status == "warn"
    assert judge_shared_memory(tmp_path, 8 * 2**30, 2**20).status == "warn"
    assert judge_shared_memory(tmp_path, 8 * 2**30, 8 * 2**30).status == "ok"
