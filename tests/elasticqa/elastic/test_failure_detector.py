"""Detection of failures: the cause among several signs, silent peers, and a main thread that is stuck."""

import pytest

from elasticqa.elastic import failure_detector
from elasticqa.elastic.end_causes import EndCause
from elasticqa.elastic.failure_detector import Detection, FailureDetector, Heartbeats, MainThreadMonitor


def sign(rank: int, kind: str) -> Detection:
    return Detection(rank, EndCause.now(kind, f"rank {rank} on a", "x"))


def test_lost_connection_is_a_likelier_cause_than_the_errors_that_follow_from_it() -> None:
    detector = FailureDetector()
    assert detector.add(sign(2, "failed"), now=10.0, wait_s=0.5)
    assert not detector.add(sign(0, "failed"), now=10.1, wait_s=0.5)
    assert detector.add(sign(1, "gone"), now=10.2, wait_s=0.5)
    assert not detector.add(sign(3, "gone"), now=10.3, wait_s=0.5)
    assert detector.decision(10.4) is None
    decision = detector.decision(10.5)
    assert decision is not None
    assert decision.rank == 1


def test_confirmed_detection_is_due_at_once() -> None:
    detector = FailureDetector()
    assert detector.decision(10.0) is None
    detector.add(sign(1, "gone"), now=10.0, wait_s=5.0)
    detector.confirm(sign(2, "failed"))
    decision = detector.decision(10.0)
    assert decision is not None
    assert decision.rank == 2


def test_peer_is_silent_after_the_timeout_unless_it_has_announced_its_end() -> None:
    heartbeats = Heartbeats(timeout_s=5.0)
    heartbeats.start([1, 2, 3], now=10.0)
    heartbeats.heard(1, now=12.0)
    heartbeats.announce_end(3)
    assert list(heartbeats.silent(15.0)) == []
    assert list(heartbeats.silent(16.0)) == [(2, 6.0)]


def test_main_thread_is_stuck_only_while_it_stays_at_one_position(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_detector, "STUCK_S", 4.0)
    positions = iter([(1, "a.py:1"), (1, "a.py:1"), (1, "a.py:1"), (1, "a.py:1"), (2, "a.py:2")])
    monkeypatch.setattr(failure_detector, "main_thread_position", lambda: next(positions))
    monitor = MainThreadMonitor()
    with monitor.active():
        assert [monitor.stuck(now) for now in (100.0, 104.0, 105.0)] == [None, None, "was stuck for 4 s in a.py:1"]
        monitor.exclude(3.0)
        assert [monitor.stuck(now) for now in (106.0, 200.0)] == [None, None]
    assert monitor.stuck(1000.0) is None
