"""/speedup and /throughput."""

import re
from pathlib import Path

from fastapi.testclient import TestClient

from tests.dashboard.homes import NOW, client_on, fill
from tests.dashboard_data import Life, RunSpec, ulid, write_run


def test_speedup_names_reference_times_and_differences(lab: TestClient) -> None:
    page = lab.get("/speedup?recipe=distributed-10k").text
    assert re.findall(r"<strong>([\d.]+)\u00d7</strong>", page) == ["0.94", "1.67", "2.72", "1.30", "2.92"]
    assert "<b>global batch</b> 4 → 16" in page
    assert "12 min 59 s" in page
    assert page.count("badge-reported") >= 6


def test_speedup_of_repeats_has_interval_test_and_efficiency(lab: TestClient) -> None:
    page = lab.get("/speedup?recipe=squad").text
    row = page[page.index("DDP, 2 GPUs") : page.index("DDP, 4 GPUs")]
    assert "speedup, strong" in row
    assert "p = 0.002" in row
    assert re.search(r"[\d.]+ to [\d.]+", row)
    assert "throughput ratio, weak" in page
    assert "1 interrupted" in page
    assert "With fewer than 6 runs" in page


def test_reader_chooses_the_reference(lab: TestClient) -> None:
    addresses = re.findall(
        r'href="(/speedup\?recipe=squad&amp;reference=[^"]+)"', lab.get("/speedup?recipe=squad").text
    )
    assert len(addresses) > 3
    for address in addresses:
        chosen = lab.get(address.replace("&amp;", "&")).text
        assert chosen.count('<tr class="reference">') == 1


def test_throughput_is_sorted_and_per_device(lab: TestClient) -> None:
    page = lab.get("/throughput").text
    rates = [float(number.replace(",", "")) for number in re.findall(r"<strong>([\d.,]+)</strong>", page)]
    assert rates == sorted(rates, reverse=True)
    assert len(rates) > 5


def test_scaling_law_needs_four_sizes(lab: TestClient, tmp_path: Path) -> None:
    assert "fitted to the medians" not in lab.get("/speedup?recipe=squad").text
    for number, size in enumerate((1, 2, 4, 8)):
        life = Life(1, 40, NOW - 9_000 + 100 * number)
        write_run(
            tmp_path / "runs", RunSpec(ulid(number), (life,), world_size=size, num_steps=40, step_time_s=1 / size)
        )
    fill(tmp_path)
    with client_on(tmp_path) as client:
        page = client.get("/speedup?recipe=squad").text
    law = page[page.index("fitted to the medians") : page.index("How to read it")]
    assert "DDP at 1, 2, 4, 8" in law
    assert "16 GPUs" in law
    assert len(re.findall(r"[\d.]+ to [\d.]+</td>", law)) == 1
