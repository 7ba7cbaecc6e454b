"""The pages /speedup and /throughput."""

import re
from pathlib import Path

from fastapi.testclient import TestClient

from tests.support.dashboard_data import AttemptSpec, RunSpec, ulid, write_run
from tests.support.dashboard_homes import NOW, client_on


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
    assert "Rows with fewer than 6 runs show no interval" in page


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
        attempt = AttemptSpec(1, 40, NOW - 9_000 + 100 * number)
        write_run(
            tmp_path / "runs", RunSpec(ulid(number), (attempt,), world_size=size, num_steps=40, step_time_s=1 / size)
        )
    with client_on(tmp_path) as client:
        page = client.get("/speedup?recipe=squad").text
    law = page[page.index("fitted to the medians") : page.index("How to read it")]
    assert "DDP at 1, 2, 4, 8" in law
    assert "16 GPUs" in law
    assert len(re.findall(r"[\d.]+ to [\d.]+</td>", law)) == 1


def test_rows_that_differ_in_one_setting_show_it(tmp_path: Path) -> None:
    for number, max_steps in enumerate((7, 10)):
        attempt = AttemptSpec(1, max_steps, NOW - 9_000 + 100 * number)
        settings = {"max_steps": max_steps, "dropout": None}
        spec = RunSpec(ulid(number), (attempt,), parallel="none", num_steps=max_steps, settings=settings)
        write_run(tmp_path / "runs", spec)
    spec = RunSpec(ulid(9), (AttemptSpec(1, 10, NOW),), world_size=2, num_steps=10, settings=settings)
    with client_on(tmp_path, spec) as client:
        page = client.get("/speedup?recipe=squad").text
        rates = client.get("/throughput").text
        (chart,) = re.findall(r'data-figure="([^"]+)"', page)
        labels = client.get(chart.replace("&amp;", "&")).json()["layout"]["yaxis"]["ticktext"]
    rows = page[page.index("<tbody>") : page.index("</tbody>")]
    assert re.findall(r'sub settings">(.*?)</span>', rows).count("max_<wbr>steps 7") == 1
    assert "max_<wbr>steps 7" in rates
    assert labels[:2] == ["single process, 1 GPU<br>max_steps 10", "single process, 1 GPU<br>max_steps 7"]
    assert rows.count("compare with this") == len(labels)
    two = rows[rows.index("DDP, 2 GPUs") :]
    assert "max_<wbr>steps 10" in two
    assert "speedup, strong" in two


def test_row_of_unequal_work_says_so_and_a_row_without_reference_shows_the_command(tmp_path: Path) -> None:
    one = RunSpec(ulid(1), (AttemptSpec(1, 4, NOW - 900),), parallel="none", num_steps=4, settings={"max_steps": 4})
    two = RunSpec(ulid(2), (AttemptSpec(1, 10, NOW - 500),), world_size=2, num_steps=10, settings={"max_steps": 10})
    alone = RunSpec(ulid(3), (AttemptSpec(1, 10, NOW - 100),), world_size=2, num_steps=10, recipe="a; b")
    with client_on(tmp_path, one, two, alone) as client:
        page = client.get("/speedup").text
    assert "4 against 10 steps: not equal work, and a throughput is missing" in page
    command = "torchx run -s local_cwd components/train.py:baseline -- --recipe"
    assert page.count(f"{command} &#39;a; b&#39;") == 1
    assert page.count(command) == 1


def test_reported_rows_show_what_their_authors_state(lab: TestClient) -> None:
    page = lab.get("/speedup?recipe=distributed-10k").text
    assert page.count(">median of 5, as reported</a>") == 6
    assert "12 min 59 s, median of 5, as reported" in page
    assert ">as reported</a>" in lab.get("/throughput").text
