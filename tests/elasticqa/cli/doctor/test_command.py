"""The whole command in separate processes, also where another package hides ours."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from elasticqa.cli.doctor.command import CHECKS
from tests.support import training
from tests.support.paths import REPOSITORY
from tests.support.processes import run_python

pytestmark = pytest.mark.slow

NO_CHECKS = {"__init__", "command", "finding", "probe", "slurm_job", "slurm_node", "slurm_findings"}
"""Modules without a check; the last three are for `--slurm`."""


def doctor(directory: Path, home: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a directory, which `python -m` searches first, and return the process."""
    environ = training.environment(home, PYTHONPATH=str(REPOSITORY))
    return run_python("-m", "elasticqa.cli.main", "doctor", *flags, cwd=directory, env=environ)


def by_check(done: subprocess.CompletedProcess[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the findings of `--json` by check."""
    result: dict[str, list[dict[str, Any]]] = {}
    for finding in json.loads(done.stdout)["findings"]:
        result.setdefault(finding["check"], []).append(finding)
    return result


def test_command_reports_every_check_and_exits_by_status(tmp_path: Path) -> None:
    done = doctor(tmp_path, tmp_path / "home", "--json")
    findings = by_check(done)
    assert set(findings) >= {
        "packages", "names", "torch", "gpu", "home", "space", "locks", "clock", "database", "shm", "limits", "host",
        "model", "dataset", "slurm",
    }  # fmt: skip
    flat = [finding for found in findings.values() for finding in found]
    assert all(finding["status"] in ("ok", "warn", "fail") and finding["found"] for finding in flat)
    assert all(bool(finding["advice"]) == (finding["status"] != "ok") for finding in flat)
    assert done.returncode == int(any(finding["status"] == "fail" for finding in flat))
    assert [finding["status"] for finding in findings["names"]] == ["ok"]
    assert done.stderr == ""


def test_package_that_hides_ours_is_named_and_the_other_checks_run(tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()
    (tmp_path / "db" / "__init__.py").write_text("raise SystemExit('foreign')")
    done = doctor(tmp_path, tmp_path / "home", "--json")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    findings = by_check(done)
    (names,) = findings["names"]
    assert names["status"] == "fail"
    assert f"`db` is {tmp_path / 'db'} and hides ours" in names["found"]
    (home,) = findings["home"]
    assert home["status"] == "fail"
    assert "could not run" in home["found"]
    assert findings["torch"][0]["status"] == "ok"
    assert findings["slurm"]


def test_unusable_home_fails_with_advice(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = doctor(tmp_path, tmp_path / "file" / "home")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    (at,) = (number for number, line in enumerate(lines) if line.startswith("fail  home "))
    assert "cannot be created" in lines[at]
    assert lines[at + 1].strip() == "-> set ELASTICQA_HOME to a directory that you can write"
    assert lines[-1].endswith(" fail")
    assert done.stderr == ""


def test_unknown_option_is_refused_in_one_line(tmp_path: Path) -> None:
    done = doctor(tmp_path, tmp_path / "home", "--frobnicate")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_every_module_with_a_check_is_listed() -> None:
    folder = REPOSITORY / "elasticqa" / "cli" / "doctor"
    modules = {check.module.rpartition(".")[2] for check in CHECKS}
    assert modules == {path.stem for path in folder.glob("*.py")} - NO_CHECKS
