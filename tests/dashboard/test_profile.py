"""The page /profiler and the traces of one run."""

import gzip
import re
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.support.dashboard_data import AttemptSpec, RunSpec, ulid, write_run
from tests.support.dashboard_homes import KILLED, LOST, MOST_BYTES, NOW, RUNNING, client_on
from tests.support.dashboard_traces import gpu_profile

ON_GPU, ON_CPU = ulid(13), ulid(101)
PLAIN = RunSpec(ulid(1), (AttemptSpec(1, 60, NOW - 900),), num_steps=60, profile=gpu_profile(1))


def row_of(page: str, run_id: str) -> str:
    rows: list[str] = re.findall(r"<tr>.*?</tr>", page, re.DOTALL)
    return next(row for row in rows if f"/runs/{run_id}/profile" in row)


def numbers_of(row: str) -> list[str]:
    """Return the numbers of a row of /profiler after the rank."""
    return re.findall(r'class="number">([\d.]+)</td>', row)[1:]


def test_profiler_compares_shares_over_runs_and_hardware(lab: TestClient) -> None:
    row = row_of(lab.get("/profiler").text, ON_GPU)
    assert numbers_of(row) == ["64.5", "15.0", "7.5", "3.0", "26.0", "13.0", "40.0"]
    figure = lab.get("/figures/profiler.json").json()
    assert figure["layout"]["barmode"] == "stack"
    assert {trace["name"] for trace in figure["data"]} >= {"compute", "exposed communication", "host in operators"}


def test_cpu_trace_has_no_device_values_and_says_so(lab: TestClient) -> None:
    row = row_of(lab.get("/profiler").text, ON_CPU)
    assert "this trace has no device events" in row
    assert numbers_of(row) == ["40.0"]
    page = lab.get(f"/runs/{ON_CPU}/profile").text
    assert "This trace has no device events" in page
    for title in ("<dt>Idle", "<dt>Compute", "Kernels by total time"):
        assert title not in page
    traces = lab.get(f"/figures/runs/{ON_CPU}/profile.json").json()["data"]
    assert [trace["name"] for trace in traces] == ["host in operators", "host outside operators"]


def test_profiler_filters_by_hardware(lab: TestClient) -> None:
    page = lab.get("/profiler", params={"device_name": "Intel(R) Xeon(R) Platinum 8480+"}).text
    assert set(re.findall(r"/runs/(\w+)/profile", page)) == {ON_CPU, LOST}
    assert "No trace matches" in lab.get("/profiler?device_name=Tesla+T4").text
    assert "No trace matches" in lab.get("/profiler?page=9").text


def test_profile_shows_shares_categories_operators_and_kernels(lab: TestClient) -> None:
    page = lab.get(f"/runs/{ON_GPU}/profile").text
    assert "rank 0 of 4 (nccl)" in page
    for text in (
        "<dt>Compute</dt><dd>64.5",
        "<dt>Host-bound idle time</dt><dd>13.0",
        "aten::addmm",
        "The first 3 of 63 kernels",
    ):
        assert text in page
    assert "flash_fwd_kernel&lt;" in page
    assert page.count('<rect width="100') == 2


def test_run_links_to_its_profile_only_where_there_is_one(lab: TestClient) -> None:
    assert f'href="/runs/{KILLED}/profile"' in lab.get(f"/runs/{KILLED}").text
    assert f"/runs/{RUNNING}/profile" not in lab.get(f"/runs/{RUNNING}").text
    assert lab.get(f"/runs/{RUNNING}/profile").status_code == 404
    assert "this run has no recorded trace" in lab.get(f"/runs/{RUNNING}/profile").text


@pytest.mark.parametrize("address", ["attempt=9&line=1", "attempt=1&node_rank=3&line=2"])
def test_trace_that_is_not_there_is_not_found(lab: TestClient, address: str) -> None:
    for path in (f"/runs/{KILLED}/profile", f"/runs/{KILLED}/profile/trace", f"/figures/runs/{KILLED}/profile.json"):
        assert lab.get(f"{path}?{address}").status_code == 404


def test_files_are_downloads(lab: TestClient) -> None:
    page = lab.get(f"/runs/{KILLED}/profile").text
    trace, table = (address.replace("&amp;", "&") for address in re.findall(r'href="([^"]+)" download', page))
    answer = lab.get(trace)
    assert answer.headers["content-disposition"].startswith(f'attachment; filename="{KILLED}-attempt-0003-rank-00000')
    assert answer.headers["content-type"] == "application/gzip"
    assert gzip.decompress(answer.content) == b'{"traceEvents": []}'
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert lab.get(table).text == "Name  Self CPU\n"
    assert lab.get(table).headers["content-type"].startswith("text/plain")
    assert lab.get(f"/runs/{KILLED}/profile/journal").status_code == 404


def test_trace_outside_the_run_cannot_be_downloaded(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", PLAIN)
    (tmp_path / "secret.json").write_text("secret")
    (tmp_path / "secret-table.txt").write_text("secret")
    journal = tmp_path / "runs" / PLAIN.run_id / "journal" / "attempt-0001-node-00000.jsonl"
    named = "traces/attempt-0001-rank-00000.json.gz"
    journal.write_text(journal.read_text().replace(f'"{named}"', '"../../secret.json"'))
    with client_on(tmp_path) as client:
        page = client.get(f"/runs/{PLAIN.run_id}/profile")
        assert "download" not in page.text
        assert "is not in the run's directory" in page.text.replace("&#39;", "'")
        for name in ("trace", "table"):
            answer = client.get(f"/runs/{PLAIN.run_id}/profile/{name}")
            assert answer.status_code == 404
            assert answer.text != "secret"


def test_every_trace_of_a_run_can_be_chosen(tmp_path: Path) -> None:
    write_run(
        tmp_path / "runs", replace(PLAIN, attempts=(AttemptSpec(1, 20, NOW - 900, None), AttemptSpec(1, 60, NOW - 800)))
    )
    first = tmp_path / "runs" / PLAIN.run_id / "journal" / "attempt-0001-node-00000.jsonl"
    num_lines = len(first.read_text().splitlines())
    line = f'{{"n": {num_lines + 1}, "t": {NOW}, "kind": "profile", "step": 20, "rank": 0, "summary": {{}}}}\n'
    first.write_text(first.read_text() + line)
    with client_on(tmp_path) as client:
        page = client.get(f"/runs/{PLAIN.run_id}/profile").text
        choices = re.findall(r'<a href="([^"]+)"(?: aria-current="true")?>attempt (\d)', page)
        assert [attempt for _, attempt in choices] == ["2", "1"]
        older = client.get(choices[1][0].replace("&amp;", "&"))
    assert older.status_code == 200
    assert "Attempt 1, rank 0" in older.text
    assert "The run kept no trace file" in older.text


def test_pages_of_large_summaries_stay_small(tmp_path: Path) -> None:
    summary = gpu_profile(1)
    for key in ("operators", "kernels"):
        summary[key] = [{**summary[key][0], "name": f"{number}<" * 60} for number in range(200)]
    runs = [replace(PLAIN, run_id=ulid(number), name="<" * 300, profile=summary) for number in range(30)]
    with client_on(tmp_path, *runs) as client:
        for path in ("/profiler", f"/runs/{ulid(1)}/profile", "/figures/profiler.json"):
            assert len(client.get(path).content) < MOST_BYTES
        page = client.get("/profiler").text
        assert 'href="/profiler?page=2"' in page
        assert len(re.findall(r"/runs/\w+/profile", client.get("/profiler?page=2").text)) == 5
