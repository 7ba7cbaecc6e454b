"""The page of one run."""

import re

from fastapi.testclient import TestClient

from dashboard.configuration import REST, grouped
from tests.dashboard.homes import KILLED, LOST, RUNNING


def test_run_shows_every_attempt_of_a_killed_run(lab: TestClient) -> None:
    page = lab.get(f"/runs/{KILLED}").text
    attempts = page[page.index('id="attempts"') : page.index('id="evaluations"')]
    assert re.findall(r"</i>(\w+)</span>", attempts) == ["lost", "preempted", "finished"]
    assert "SIGUSR1: time limit near" in attempts
    assert "checkpoints/step-00000100" in attempts
    assert re.search(r'<td class="number">130</td>\s*<td class="number">30</td>', attempts)


def test_run_shows_configuration_environment_and_what_it_left(lab: TestClient) -> None:
    page = lab.get(f"/runs/{KILLED}").text
    for part in ("learning_rate", "4e-05", "node01", "128 GiB", "580.95.05", "4f2c9d1e8b7a", "2.13.0"):
        assert part in page
    assert "checkpoints/step-00000200" in page
    assert "went on from step 160" in page
    assert "80.87" in page or re.search(r"<dt>Exact match</dt><dd>\d\d\.\d\d", page)


def test_equal_environments_are_shown_once(lab: TestClient) -> None:
    page = lab.get(f"/runs/{KILLED}").text
    assert "as before" not in page
    assert page.count("<summary>Attempt") == 3


def test_running_run_is_refreshed_and_a_finished_one_is_not(lab: TestClient) -> None:
    assert 'data-live="5"' in lab.get(f"/runs/{RUNNING}").text
    assert "data-live" not in lab.get(f"/runs/{KILLED}").text
    assert "No sign of life since" in lab.get(f"/runs/{LOST}").text


def test_reported_run_says_that_it_was_not_measured_here(lab: TestClient) -> None:
    page = lab.get("/runs/reported-baseline-10k").text
    assert "not measured here" in page
    assert "No step of this run is recorded" in page


def test_every_setting_is_shown_once() -> None:
    config = {"seed": 1, "model": "bert", "parallel": "ddp", "brand_new": 2}
    groups = grouped(config)
    assert dict(pair for _, settings in groups for pair in settings) == config
    assert groups[-1] == (REST, [("brand_new", 2)])
