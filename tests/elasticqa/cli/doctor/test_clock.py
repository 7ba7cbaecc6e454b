"""Clocks that are right, wrong, or nobody's business."""

from pathlib import Path

import pytest

from elasticqa.cli.doctor.clock import check, check_clock

INSTALLED = 1_800_000_000.0


@pytest.mark.parametrize(
    ("now", "skew_s", "is_synchronized", "status", "expected"),
    [
        (INSTALLED + 60, 0.0, True, "ok", "synchronized"),
        (INSTALLED + 60, 4.9, None, "ok", "2027-01-15 08:01:00 UTC"),
        (INSTALLED + 60, -90.0, True, "warn", "-90 s off"),
        (INSTALLED + 60, 0.0, False, "warn", "kept to no reference"),
        (0.0, 0.0, True, "fail", "1970-01-01"),
    ],
)
def test_clock_is_judged_by_what_it_is_compared_with(
    now: float, skew_s: float, is_synchronized: bool | None, status: str, expected: str
) -> None:
    finding = check_clock(now, INSTALLED, skew_s, is_synchronized=is_synchronized)
    assert finding.status == status
    assert expected in finding.found


def test_clock_of_this_machine_agrees_with_its_own_disk(tmp_path: Path) -> None:
    (finding,) = check({"ELASTICQA_HOME": str(tmp_path)})
    assert finding.status in ("ok", "warn")
    assert "off" not in finding.found
    assert list(tmp_path.iterdir()) == []
