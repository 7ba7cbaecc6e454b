"""The page /throughput: utilization, percentiles, filters."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.orm import Session

from dashboard.routes.throughput import throughput_row
from db import queries
from db.engine import create_engine_for
from tests.support.dashboard_data import AttemptSpec, RunSpec, ulid, write_run
from tests.support.dashboard_homes import NOW, client_on, ingest_home

A100 = RunSpec(
    ulid(1), (AttemptSpec(1, 100, NOW - 900),), world_size=2, num_steps=100, device_name="NVIDIA A100-PCIE-40GB"
)


def rows(page: str) -> list[str]:
    return re.findall(r"<tr>\s*<td.*?</tr>", page, re.DOTALL)


def cells_of(row: str) -> list[str]:
    """Return the numbers of a row after the number of runs: rates, utilization, steps."""
    cells: list[str] = re.findall(r'<td class="number(?: nowrap)?">(.*?)</td>', row)
    return [re.sub(r"<.*?>", "", cell) for cell in cells][1:]


def test_utilization_is_of_real_and_of_padded_tokens(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", A100)
    ingest_home(tmp_path)
    engine = create_engine_for(f"sqlite:///{tmp_path / 'record.db'}")
    with Session(engine) as session:
        (group,) = queries.throughput_groups(session, provenance="measured")
        steps = queries.step_speed_of(session, A100.run_id)
        counted = [step for step in queries.steps_of(session, A100.run_id) if not step.is_warmup]
    engine.dispose()
    seconds, real, padded = (
        sum(getattr(step, name) for step in counted) for name in ("step_time_s", "num_tokens", "num_padded_tokens")
    )
    found = throughput_row(group, steps).utilization
    flops_per_token, peak = 6 * 85_056_002, 2 * 312e12
    assert found.mfu == pytest.approx(real / seconds * flops_per_token / peak)
    assert found.padded_tokens_per_s == pytest.approx(padded / seconds)
    assert found.mfu_padded == pytest.approx(padded / seconds * flops_per_token / peak)


def test_unknown_peak_or_flops_leave_utilization_empty(lab: TestClient) -> None:
    shown = rows(lab.get("/throughput").text)
    known = {
        is_known: [cells_of(row)[4:6] for row in shown if ("H100" in row) == is_known] for is_known in (True, False)
    }
    assert len(known[True]) > 4
    assert all(float(share) > 0 for shares in known[True] for share in shares)
    assert len(known[False]) > 2
    assert all(shares == ["\u2013", "\u2013"] for shares in known[False])


def test_groups_are_filtered_by_hardware_and_strategy(lab: TestClient) -> None:
    page = lab.get("/throughput?parallel=fsdp").text
    assert len(rows(page)) == 1
    assert "FSDP, 4 GPUs" in rows(page)[0]
    (address,) = re.findall(r'data-figure="([^"]+)"', page)
    assert len(lab.get(address.replace("&amp;", "&")).json()["layout"]["yaxis"]["ticktext"]) == 1
    on_cpu = lab.get("/throughput", params={"device_name": "Intel(R) Xeon(R) Platinum 8480+"}).text
    assert {("CPU process" in row) for row in rows(on_cpu)} == {True}
    assert "No group matches" in lab.get("/throughput?parallel=fsdp&device_name=none").text


def test_steps_of_the_newest_repeat_are_shown(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", replace(A100, step_time_s=0.5))
    newer = replace(A100, run_id=ulid(2), attempts=(AttemptSpec(1, 100, NOW - 90),), step_time_s=0.1, seed=1)
    with client_on(tmp_path, newer) as client:
        page = client.get("/throughput").text
    (row,) = [row for row in rows(page) if "A100" in row and "reported" not in row]
    median_ms, slow_ms = (float(cell.removesuffix(" ms")) for cell in cells_of(row)[6:8])
    assert 80 < median_ms < 110 < slow_ms < 200
