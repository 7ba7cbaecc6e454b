"""The clock of what a process does before and after its steps."""

import time

import pytest

from elasticqa.training.startup_timer import StartupTimer


def test_phases_follow_each_other_without_a_gap() -> None:
    began = time.time() - 100.0
    phases = StartupTimer(began)
    phases.end("import")
    phases.end("features")
    phases.end("model")
    seconds = phases.take()
    assert list(seconds) == ["import", "features", "model"]
    assert seconds["import"] == pytest.approx(100.0, abs=5.0)
    assert sum(seconds.values()) <= time.time() - began


def test_phase_that_comes_again_adds_up() -> None:
    phases = StartupTimer(time.time() - 10.0)
    phases.end("build")
    first = phases.take()["build"]
    assert phases.take() == {}
    phases.end("build")
    phases.end("build")
    assert 0 <= phases.take()["build"] < first


def test_skipped_time_belongs_to_no_phase() -> None:
    phases = StartupTimer(time.time() - 1000.0)
    phases.skip()
    phases.end("export")
    assert phases.take()["export"] < 500.0
