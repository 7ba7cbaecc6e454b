"""Checks that break, exit or hang become findings."""

from pathlib import Path

import pytest

from elasticqa.cli.doctor.command import Check, as_text, run_check
from elasticqa.cli.doctor.finding import fail, ok, warn


def module(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str) -> str:
    """Write a module with a check, put it on the path, and return its name."""
    (folder / f"{name}.py").write_text(content)
    monkeypatch.syspath_prepend(folder)
    return name


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("raises_at_import", "raise RuntimeError('first\\nsecond')", "RuntimeError: first"),
        ("exits_at_import", "raise SystemExit(3)", "SystemExit: 3"),
        ("has_no_check", "", "has no attribute 'check'"),
        ("check_raises", "def check(environ): return environ['absent']", "KeyError: 'absent'"),
    ],
)
def test_check_that_breaks_is_a_failure_of_one_line(
    name: str, content: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = Check("subject", module(tmp_path, monkeypatch, name, content), 10, "hurry")
    (finding,) = run_check(check, {})
    assert (finding.check, finding.status) == ("subject", "fail")
    assert expected in finding.found
    assert "\n" not in finding.found


def test_check_that_hangs_is_a_failure_with_its_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = "import threading\ndef check(environ): threading.Event().wait()"
    check = Check("subject", module(tmp_path, monkeypatch, "never_answers", content), 0.1, "hurry")
    assert run_check(check, {}) == [fail("subject", "no answer within 0.1 s", "hurry")]


def test_missing_module_is_a_failure() -> None:
    (finding,) = run_check(Check("subject", "elasticqa.cli.doctor.absent", 10, "hurry"), {})
    assert "ModuleNotFoundError" in finding.found


def test_text_has_status_fact_and_advice() -> None:
    assert as_text(ok("disk", "much\nroom")) == "ok    disk         much room"
    assert as_text(warn("disk", "little room", "delete something")) == (
        "warn  disk         little room\n                   -> delete something"
    )
