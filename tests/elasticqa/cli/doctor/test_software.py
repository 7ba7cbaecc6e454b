"""Requirements compared with the installed packages, an environment without torch, and packages that hide ours."""

from pathlib import Path

import packaging
import pytest

from elasticqa.cli.doctor.software import NAMES, ROOT, check, check_names, check_packages
from tests.support.paths import REPOSITORY
from tests.support.processes import run_python

WITHOUT_TORCH = """
from elasticqa.cli.doctor.devices import check
from elasticqa.cli.doctor.software import check_packages
for finding in check_packages(['packaging', 'torch; extra == "train"']) + check({}):
    print(finding.status, finding.check, finding.found)
"""


def test_requirements_are_met_here() -> None:
    assert [finding.status for finding in check({})] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("requirement", "problem"),
    [
        ("numpy>=999", "needed is >=999"),
        ("no-such-package-of-ours>=1", "no-such-package-of-ours is not installed"),
        ('torch<1; extra == "train"', "needed is <1"),
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


def test_machine_without_torch_can_only_show_runs(tmp_path: Path) -> None:
    source = Path(str(packaging.__file__)).parent
    (tmp_path / "packaging").symlink_to(source)
    (info,) = source.parent.glob("packaging-*.dist-info")
    (tmp_path / info.name).symlink_to(info)
    done = run_python("-S", "-c", WITHOUT_TORCH, cwd=tmp_path, env={"PYTHONPATH": f"{tmp_path}:{REPOSITORY}"})
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [["ok", "packages"], ["warn", "packages"], ["warn", "torch"]]


def test_own_packages_are_ok() -> None:
    assert ROOT == REPOSITORY
    (finding,) = check_names(ROOT, [str(ROOT)], {"db": ["elasticqa", "elasticqa"]})
    assert finding.status == "ok"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["package", "module"])
def test_package_or_module_earlier_on_the_path_hides_ours(name: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / name / "__init__.py" if kind == "package" else tmp_path / f"{name}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text("")
    (finding,) = check_names(ROOT, [str(tmp_path), str(ROOT)], {})
    assert finding.status == "fail"
    assert str(path.parent if kind == "package" else path) in finding.found


def test_later_package_and_directory_without_init_hide_nothing(tmp_path: Path) -> None:
    (tmp_path / "db.py").write_text("")
    (tmp_path / "first" / "dashboard").mkdir(parents=True)
    (finding,) = check_names(ROOT, [str(tmp_path / "first"), str(ROOT), str(tmp_path)], {})
    assert finding.status == "ok"


def test_other_copy_of_elasticqa_is_a_warning(tmp_path: Path) -> None:
    for path in ("db/__init__.py", "elasticqa/cli/main.py"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text("")
    (finding,) = check_names(ROOT, [str(tmp_path), str(ROOT)], {})
    assert finding.status == "warn"
    assert "another copy of elasticqa" in finding.found


def test_other_distribution_with_the_same_package_is_named() -> None:
    (finding,) = check_names(ROOT, [str(ROOT)], {"components": ["widgets", "elasticqa"], "yaml": ["pyyaml"]})
    assert finding.status == "warn"
    assert "`components` is also installed by widgets" in finding.found
