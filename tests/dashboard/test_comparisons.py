"""/speedup and /throughput."""

import re

from fastapi.testclient import TestClient


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
