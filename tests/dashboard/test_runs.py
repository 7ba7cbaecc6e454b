"""The table at /runs."""

import re
from pathlib import Path

from fastapi.testclient import TestClient

from tests.support.dashboard_data import AttemptSpec, RunSpec, ulid
from tests.support.dashboard_homes import NOW, client_on


def test_root_redirects_to_the_runs(lab: TestClient) -> None:
    answer = lab.get("/", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (307, "/runs")


def test_runs_show_status_scores_and_hardware(lab: TestClient) -> None:
    page = lab.get("/runs").text
    assert "40 runs" in page
    row = page[page.index("preempted twice") - 400 : page.index("preempted twice") + 1500]
    for part in ("finished", "squad", "bert-base-uncased", "DDP", "4 GPUs, 2 nodes", "H100 80GB HBM3", "elastic"):
        assert part in row
    assert 'status-lost"' in page


def test_runs_are_filtered_by_the_form(lab: TestClient) -> None:
    page = lab.get("/runs", params={"status": "failed", "recipe": "", "text": ""}).text
    assert "1 of 40" in page
    assert "BERT-large without checkpointing" in page
    assert '<option value="failed" selected>' in page


def test_reported_rows_are_explained_and_can_be_hidden(lab: TestClient) -> None:
    page = lab.get("/runs?sort=wall_clock_s").text
    (address,) = re.findall(r'results that earlier projects.*?href="([^"]+)"', page)
    assert len(re.findall(r'data-label="Created" class="nowrap"><span class="muted">reported<', page)) == 8
    measured = lab.get(address.replace("&amp;", "&")).text
    assert "badge-reported" not in measured
    assert "results that earlier projects" not in measured


def test_headings_reverse_the_order(lab: TestClient) -> None:
    page = lab.get("/runs?sort=f1&status=finished").text
    assert re.search(r'aria-sort="descending"><a href="/runs\?status=finished&amp;sort=f1&amp;direction=asc">F1', page)
    assert 'href="/runs?status=finished&amp;sort=name&amp;direction=asc"' in page


def test_long_tables_have_pages(lab: TestClient, tmp_path: Path) -> None:
    runs = [RunSpec(ulid(number), (AttemptSpec(1, 2, NOW - 9_000 + number),)) for number in range(60)]
    with client_on(tmp_path, *runs) as client:
        first, second = client.get("/runs").text, client.get("/runs?page=2").text
        beyond = client.get("/runs?page=9").text
    assert "rows 1 to 50, page 1 of 2" in first
    assert 'rel="next" href="/runs?page=2"' in first
    assert 'rel="prev" href="/runs"' in second
    assert "There is no page 9" in beyond


def test_no_match_links_to_all_runs(lab: TestClient) -> None:
    page = lab.get("/runs?text=nothing+like+it").text
    assert "No run matches" in page
    assert "show all 40 runs" in page


def test_empty_record_shows_the_command_of_a_first_run(tmp_path: Path) -> None:
    with client_on(tmp_path) as client:
        for path in ("/runs", "/speedup"):
            page = client.get(path).text
            assert "torchx run -s local_cwd components/train.py:ddp" in page
            assert "badge-reported" in page
