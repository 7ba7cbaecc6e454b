"""The page of one run."""

import re
from pathlib import Path

from fastapi.testclient import TestClient

from dashboard.configuration import REST, grouped
from tests.dashboard.homes import KILLED, LOST, MOST_BYTES, NOW, RUNNING, client_on, fill
from tests.dashboard_data import Life, RunSpec, ulid, write_run


def test_run_shows_every_attempt_of_a_killed_run(lab: TestClient) -> None:
    page = lab.get(f"/runs/{KILLED}").text
    attempts = page[page.index('id="attempts"') : page.index('id="evaluations"')]
    assert re.findall(r"</i>(\w+)</span>", attempts) == ["lost", "preempted", "finished"]
    assert "SIGUSR1: time limit near" in attempts
    assert "checkpoints/step-00000100" in attempts
    assert re.search(r'<td class="number">130</td>\s*<td class="number">30</td>', attempts)


def test_run_shows_configuration_environment_and_what_it_left(lab: TestClient) -> None:
    page = lab.get(f"/runs/{KILLED}").text
    for part in ("learning_<wbr>rate", "4e-05", "node01", "128 GiB", "580.95.05", "4f2c9d1e8b7a", "2.13.0"):
        assert part in page
    assert "checkpoints/step-00000200" in page
    assert "went on from step 160" in page
    assert "80.87" in page or re.search(r"<dt>Exact match</dt><dd>\d\d\.\d\d", page)


def test_equal_environments_are_shown_once(lab: TestClient) -> None:
    page = lab.get(f"/runs/{KILLED}").text
    assert page.count("<summary>Attempt") == 1
    assert "<summary>Attempts 1 to 3</summary>" in page


def test_running_run_is_refreshed_and_a_finished_one_is_not(lab: TestClient) -> None:
    assert 'data-live="5"' in lab.get(f"/runs/{RUNNING}").text
    assert "data-live" not in lab.get(f"/runs/{KILLED}").text
    assert "No sign of life since" in lab.get(f"/runs/{LOST}").text


def test_reported_run_says_that_it_was_not_measured_here(lab: TestClient) -> None:
    page = lab.get("/runs/reported-baseline-10k").text
    assert "not measured here" in page
    assert "No step of this run is recorded" in page


def test_reported_run_shows_only_what_is_known(lab: TestClient) -> None:
    page = lab.get("/runs/reported-squad").text
    assert 'id="time"' not in page
    assert "imeline" not in page
    assert "13 min" in page
    attempts = page[page.index('id="attempts"') : page.index('id="configuration"')]
    assert re.search(r'<td class="number">7,378</td>\s*<td class="number">\u2013</td>', attempts)
    assert "UTC" not in attempts
    assert "created" not in page
    unknown = lab.get("/runs/reported-distributed-10k-ddp-1n2g").text
    assert re.search(r'<td class="number">\u2013</td>\s*<td class="number">\u2013</td>', unknown)


def test_setting_that_is_null_is_shown_as_not_set(lab: TestClient) -> None:
    page = lab.get(f"/runs/{KILLED}").text
    assert re.search(r"max_<wbr>steps</th><td>not set<", page)


def test_every_setting_is_shown_once() -> None:
    config = {"seed": 1, "model": "bert", "parallel": "ddp", "brand_new": 2}
    groups = grouped(config)
    assert dict(pair for _, settings in groups for pair in settings) == config
    assert groups[-1] == (REST, [("brand_new", 2)])


def test_page_of_a_run_that_was_killed_hundreds_of_times_stays_small(tmp_path: Path) -> None:
    lives = tuple(Life(1 + number, 4 + number, NOW - 9_000 + 20 * number, None) for number in range(150))
    write_run(tmp_path / "runs", RunSpec(ulid(1), lives))
    fill(tmp_path)
    with client_on(tmp_path) as client:
        answer = client.get(f"/runs/{ulid(1)}")
    assert len(answer.content) < MOST_BYTES
    assert "50 older attempts" in answer.text
    assert "<summary>Attempts 1 to 150</summary>" in answer.text


def test_changed_software_starts_an_environment(tmp_path: Path) -> None:
    spec = RunSpec(ulid(1), (Life(1, 5, NOW - 900, None), Life(1, 5, NOW - 800)))
    write_run(tmp_path / "runs", spec)
    second = tmp_path / "runs" / ulid(1) / "journal" / "attempt-0002-node-00000.jsonl"
    second.write_text(second.read_text().replace("2.13.0", "2.14.0"))
    fill(tmp_path)
    with client_on(tmp_path) as client:
        page = client.get(f"/runs/{ulid(1)}").text
    assert re.findall(r"<summary>(.*)</summary>", page) == ["Attempt 1", "Attempt 2"]
