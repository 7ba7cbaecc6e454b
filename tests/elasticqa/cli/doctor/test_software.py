"""Requirements compared with what is really installed here, and with an installation that has no torch."""

from pathlib import Path

import packaging
import pytest

from elasticqa.cli.doctor.software import check, check_packages, check_python
from tests.support.paths import REPOSITORY
from tests.support.processes import run_python

WITHOUT_TORCH = """
from elasticqa.cli.doctor.devices import check
from elasticqa.cli.doctor.software import check_packages
for finding in check_packages(['packaging', 'torch; extra == "train"']) + check({}):
    print(finding.status, finding.check, finding.found)
"""


def test_own_requirements_are_met_here() -> None:
    assert [finding.status for finding in check({})] == ["ok", "ok"]


def test_old_python_fails() -> None:
    assert check_python((3, 10)).status == "fail"
    assert check_python((3, 11)).status == "ok"
    assert check_python((4, 0)).status == "ok"


@pytest.mark.parametrize(
    ("requirement", "problem"),
    [
        ("numpy>=999", "asked for is >=999"),
        ("no-such-package-of-ours>=1", "no-such-package-of-ours is not installed"),
        ('torch<1; extra == "train"', "asked for is <1"),
    ],
)
def test_missing_or_wrong_package_fails(requirement: str, problem: str) -> None:
    (finding,) = check_packages(["packaging", requirement])
    assert finding.status == "fail"
    assert problem in finding.found
    assert "pip install" in (finding.advice or "")


@pytest.mark.parametrize("marker", ['extra == "test"', 'python_version < "3"'])
def test_requirement_of_other_extras_or_systems_is_left_out(marker: str) -> None:
    (finding,) = check_packages(["packaging", f"no-such-package-of-ours; {marker}"])
    assert finding.status == "ok"


def test_machine_without_torch_is_told_that_it_can_only_show_runs(tmp_path: Path) -> None:
    source = Path(str(packaging.__file__)).parent
    (tmp_path / "packaging").symlink_to(source)
    (info,) = source.parent.glob("packaging-*.dist-info")
    (tmp_path / info.name).symlink_to(info)
    done = run_python("-S", "-c", WITHOUT_TORCH, cwd=tmp_path, env={"PYTHONPATH": f"{tmp_path}:{REPOSITORY}"})
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [["ok", "packages"], ["warn", "packages"], ["warn", "torch"]]
