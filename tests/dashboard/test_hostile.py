"""Text in the record that contains markup or script."""

import json
import re

import pytest
from fastapi.testclient import TestClient

from tests.support.dashboard_data import ulid
from tests.support.dashboard_homes import HOSTILE, KILLED, pages_of


@pytest.mark.parametrize("path", [*pages_of(ulid(1)), f"/runs/{ulid(2)}"])
def test_hostile_text_stays_text(hostile: TestClient, path: str) -> None:
    page = hostile.get(path).text
    assert "onerror=alert(1)" in page
    assert "<img" not in page
    assert page.count("</script>") == page.count("<script ")
    assert f'="{HOSTILE}' not in page


def test_hostile_recipe_is_a_section_with_a_chart(hostile: TestClient) -> None:
    (address, *_) = re.findall(r'data-figure="([^"]+)"', hostile.get("/speedup").text)
    figure = hostile.get(address.replace("&amp;", "&")).json()
    assert figure["data"]
    assert "<img" not in json.dumps(figure)


@pytest.mark.parametrize(
    "path",
    ["/figures/profiler.json", f"/figures/runs/{ulid(1)}/profile.json", f"/figures/runs/{ulid(1)}/timeline.json"],
)
def test_hostile_text_of_a_figure_is_no_markup(hostile: TestClient, path: str) -> None:
    figure = hostile.get(path).json()
    assert figure["data"]
    assert "<img" not in json.dumps(figure)


def test_hostile_search_in_predictions_comes_back_escaped(lab: TestClient) -> None:
    page = lab.get(f"/runs/{KILLED}/predictions", params={"text": HOSTILE}).text
    assert "<img" not in page
    assert "No question matches" in page


def test_hostile_filters_come_back_escaped(lab: TestClient) -> None:
    page = lab.get("/runs", params={"text": HOSTILE, "model": HOSTILE}).text
    assert "<img" not in page
    assert "No run matches" in page
