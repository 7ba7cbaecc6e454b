"""All pages: size, charts, assets, errors."""

import re

import pytest
from fastapi.testclient import TestClient

from dashboard.rendering.assets import PLOTLY, STATIC, asset_url, map_style_ids
from dashboard.routes.run_figures import FIGURES
from tests.support.dashboard_homes import KILLED, MOST_BYTES, pages_of


@pytest.mark.parametrize(
    "path",
    [
        "/runs/nope",
        "/runs/nope/profile",
        "/runs/nope/profile/trace",
        "/runs/nope/predictions",
        "/figures/runs/nope/loss.json",
        "/figures/runs/nope/profile.json",
        "/api/runs/nope",
        "/api/runs/nope/steps",
    ],
)
def test_unknown_run_is_not_found(lab: TestClient, path: str) -> None:
    answer = lab.get(path)
    assert answer.status_code == 404
    assert "run_id=" in answer.text
    assert answer.headers["content-type"].startswith("text/html" if path.startswith("/runs") else "application/json")


@pytest.mark.parametrize("path", ["/nowhere", "/api/nowhere", f"/figures/runs/{KILLED}/nothing.json"])
def test_unknown_page_is_not_found(lab: TestClient, path: str) -> None:
    assert lab.get(path).status_code == 404


@pytest.mark.parametrize(
    "path", ["/runs?page=0", "/runs?sort=config", "/api/runs?limit=0", "/runs?page=x", "/profiler?page=0"]
)
def test_invalid_address_names_the_parameter(lab: TestClient, path: str) -> None:
    answer = lab.get(path)
    assert answer.status_code == 422
    assert re.search(r"(page|sort|limit)=", answer.text)


RUN_FIGURES = [f"/figures/runs/{KILLED}/{name}.json" for name in FIGURES]


@pytest.mark.parametrize("path", [*pages_of(KILLED), *RUN_FIGURES])
def test_pages_and_figures_are_small(lab: TestClient, path: str) -> None:
    answer = lab.get(path)
    assert answer.status_code == 200
    assert len(answer.content) < MOST_BYTES


@pytest.mark.parametrize("address", RUN_FIGURES)
def test_figures_of_a_run_have_traces(lab: TestClient, address: str) -> None:
    figure = lab.get(address).json()
    assert figure["data"]
    assert figure["layout"]["xaxis"]["title"]["text"]


def test_every_chart_of_a_page_can_be_fetched(lab: TestClient) -> None:
    for path in (*pages_of(KILLED), "/speedup?recipe=squad"):
        addresses = re.findall(r'data-figure="([^"]+)"', lab.get(path).text)
        assert bool(addresses) == (path not in {"/runs", f"/runs/{KILLED}/predictions"})
        for address in addresses:
            assert lab.get(address.replace("&amp;", "&")).json()["data"]


def test_pages_load_nothing_from_elsewhere(lab: TestClient) -> None:
    for path in (*pages_of(KILLED), "/runs/nope"):
        page = lab.get(path).text
        assert re.findall(r'(?:src|href)="(?!/)(?!#)[^"]*"', page) == []
        assert not re.search(r"\sstyle=|\son\w+=|<script(?! src=)|<style", page)


def test_assets_are_compressed_and_cached_forever(lab: TestClient) -> None:
    for name in (PLOTLY, *(path.name for path in STATIC.iterdir())):
        answer = lab.get(asset_url(name))
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["content-encoding"] == "gzip"
        plain = lab.get(asset_url(name), headers={"Accept-Encoding": "identity"})
        assert plain.content == answer.content
        assert lab.get(f"/static/0/{name}").status_code == 404
    assert lab.get("/static/0/../app.py").status_code == 404


def test_pages_prevent_the_style_sheet_of_maps(lab: TestClient) -> None:
    assert map_style_ids()
    for identifier in map_style_ids():
        assert f'<template id="{identifier}">' in lab.get("/throughput").text
