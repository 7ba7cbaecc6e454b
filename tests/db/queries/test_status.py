import pytest

from db.queries.status import LOST_AFTER_S, effective_status


@pytest.mark.parametrize(
    ("status", "age_s", "expected"),
    [
        ("running", 0.0, "running"),
        ("running", LOST_AFTER_S, "running"),
        ("running", LOST_AFTER_S + 0.001, "lost"),
        ("finished", 1e9, "finished"),
        ("failed", 1e9, "failed"),
        ("preempted", 1e9, "preempted"),
    ],
)
def test_only_a_silent_running_run_is_lost(status: str, age_s: float, expected: str) -> None:
    assert effective_status(status, 1000.0, now=1000.0 + age_s) == expected


def test_run_without_any_line_is_lost() -> None:
    assert effective_status("running", None, now=0.0) == "lost"
