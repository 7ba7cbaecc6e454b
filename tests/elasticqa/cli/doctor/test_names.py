"""Real directories that hide our packages, and those that do not."""

from pathlib import Path

import pytest

from elasticqa.cli.doctor.names import NAMES, ROOT, check_names
from tests.support.paths import REPOSITORY


def test_own_packages_are_well() -> None:
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


def test_package_later_on_the_path_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "db.py").write_text("")
    (finding,) = check_names(ROOT, [str(ROOT), str(tmp_path)], {})
    assert finding.status == "ok"


def test_directory_without_init_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "dashboard").mkdir()
    (finding,) = check_names(ROOT, [str(tmp_path), str(ROOT)], {})
    assert finding.status == "ok"


def test_other_copy_of_elasticqa_is_told_as_such(tmp_path: Path) -> None:
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
