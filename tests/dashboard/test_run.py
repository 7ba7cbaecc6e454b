"""The page of one run."""

import json
import re
from pathlib import Path

from fastapi.testclient import TestClient

from dashboard.routes.run import OTHER_GROUP, group_config
from tests.support.dashboard_data import AttemptSpec, RunSpec, ulid, write_run
from tests.support.dashboard_homes import KILLED, LOST, MOST_BYTES, NOW, RUNNING, client_on


def test_run_shows_every_attempt_of_a_killed_run(lab: TestClient) -> None:
    page = lab.get(f"/runs/{KILLED}").text
    attempts = page[page.index('id="attempts"') : page.index('id="evaluations"')]
    assert re.findall(r"</i>(\w+)</span>", attempts) == ["lost", "preempted", "finished"]
    assert "SIGUSR1: time limit near" in attempts
    assert "checkpoints/step-00000100" in attempts
    assert re.search(r'<td class="number">130</td>\s*<td class="number">30</td>', attempts)


def test_run_shows_configuration_environment_checkpoints_and_events(lab: TestClient) -> None:
    page = lab.get(f"/runs/{KILLED}").text
    for part in ("learning_<wbr>rate", "4e-05", "node01", "128 GiB", "580.95.05", "4f2c9d1e8b7a", "2.13.0"):
        assert part in page
    assert "checkpoints/step-00000200" in page
    assert "resumed from step 160" in page
    assert "80.87" in page or re.search(r"<dt>Exact match</dt><dd>\d\d\.\d\d", page)


def test_attempt_of_another_size_has_its_own_environment(lab: TestClient) -> None:
    page = lab.get(f"/runs/{KILLED}").text
    assert re.findall(r"<summary>(Attempt.*)</summary>", page) == ["Attempt 1", "Attempt 2", "Attempt 3"]


def test_running_run_is_refreshed_and_a_finished_one_is_not(lab: TestClient) -> None:
    assert 'data-live="5"' in lab.get(f"/runs/{RUNNING}").text
    assert "data-live" not in lab.get(f"/runs/{KILLED}").text
    assert "No journal line since" in lab.get(f"/runs/{LOST}").text


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


def test_run_without_its_directory_says_so(tmp_path: Path) -> None:
    with client_on(tmp_path, RunSpec(ulid(1), (AttemptSpec(1, 5, NOW - 900),))) as client:
        assert "is not in this dashboard" not in client.get(f"/runs/{ulid(1)}").text
        (tmp_path / "runs" / ulid(1)).rename(tmp_path / "elsewhere")
        page = client.get(f"/runs/{ulid(1)}").text
        assert f"<code>elasticqa ingest --forget {ulid(1)}</code>" in page
        assert "is not in this dashboard" not in client.get("/runs/reported-squad").text


def test_steps_section_shows_what_is_recorded(lab: TestClient, tmp_path: Path) -> None:
    page = lab.get(f"/runs/{KILLED}").text
    steps = page[page.index('<section id="steps">') : page.index('<section id="timeline">')]
    assert re.search(r"Largest over mean rank</dt><dd>1\.03\d", steps)
    assert "Peak reserved memory</dt><dd>13 GiB" in steps
    assert "MFU, real tokens" in steps
    assert "/tokens.json" in page
    journal = write_plain_journal(tmp_path)
    with client_on(tmp_path) as client:
        page = client.get(f"/runs/{journal}").text
    assert '<section id="steps">' in page
    for absent in ("Largest over mean rank", "Peak reserved", "MFU, real tokens", "/tokens.json"):
        assert absent not in page


def test_phases_are_summed_over_attempts(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", RunSpec(ulid(1), (AttemptSpec(1, 5, NOW - 900, None), AttemptSpec(1, 5, NOW - 800))))
    for path in (tmp_path / "runs" / ulid(1) / "journal").iterdir():
        path.write_text(
            path.read_text().replace('"setup_time_s": 8.0', '"setup_time_s": 8.0, "phases": {"import": 2.5}')
        )
    with client_on(tmp_path) as client:
        page = client.get(f"/runs/{ulid(1)}").text
    assert re.search(r"Within setup and other.*<td>import</td><td class=\"number\">5 s</td>", page, re.DOTALL)
    assert re.findall(r"<summary>(Attempt.*)</summary>", page) == ["Attempts 1 to 2"]


def write_plain_journal(home: Path) -> str:
    """Write a run whose journal has none of the values that may be left out; return its id."""
    write_run(home / "runs", RunSpec(ulid(1), (AttemptSpec(1, 40, NOW - 900),), device_type="cpu", device_name="Xeon"))
    path = home / "runs" / ulid(1) / "journal" / "attempt-0001-node-00000.jsonl"
    optional = {"max_rank_tokens", "mean_rank_tokens", "peak_reserved_bytes"}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    kept = [{key: value for key, value in line.items() if key not in optional} for line in lines]
    path.write_text("".join(json.dumps(line) + "\n" for line in kept))
    return ulid(1)


def test_setting_that_is_null_is_shown_as_not_set(lab: TestClient) -> None:
    page = lab.get(f"/runs/{KILLED}").text
    assert re.search(r"max_<wbr>steps</th><td>not set<", page)


def test_every_setting_is_shown_once() -> None:
    config = {"seed": 1, "model": "bert", "parallel": "ddp", "brand_new": 2}
    groups = group_config(config)
    assert dict(pair for _, settings in groups for pair in settings) == config
    assert groups[-1] == (OTHER_GROUP, [("brand_new", 2)])


def test_page_of_a_run_that_was_killed_hundreds_of_times_stays_small(tmp_path: Path) -> None:
    attempts = tuple(AttemptSpec(1 + number, 4 + number, NOW - 9_000 + 20 * number, None) for number in range(150))
    with client_on(tmp_path, RunSpec(ulid(1), attempts)) as client:
        answer = client.get(f"/runs/{ulid(1)}")
    assert len(answer.content) < MOST_BYTES
    assert "50 older attempts" in answer.text
    assert "<summary>Attempts 1 to 150</summary>" in answer.text


def test_changed_software_starts_an_environment(tmp_path: Path) -> None:
    spec = RunSpec(ulid(1), (AttemptSpec(1, 5, NOW - 900, None), AttemptSpec(1, 5, NOW - 800)))
    write_run(tmp_path / "runs", spec)
    second = tmp_path / "runs" / ulid(1) / "journal" / "attempt-0002-node-00000.jsonl"
    second.write_text(second.read_text().replace("2.13.0", "2.14.0"))
    with client_on(tmp_path) as client:
        page = client.get(f"/runs/{ulid(1)}").text
    assert re.findall(r"<summary>(.*)</summary>", page) == ["Attempt 1", "Attempt 2"]
