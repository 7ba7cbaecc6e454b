"""JSON below /api, and /healthz."""

from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, text

from tests.support.dashboard_homes import KILLED, client_on


def test_api_lists_the_runs_of_the_page(lab: TestClient) -> None:
    answer = lab.get("/api/runs", params={"sort": "f1", "limit": 3, "recipe": "squad"}).json()
    assert answer["num_all"] == 40
    scores = [run["f1"] for run in answer["runs"]]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 3


def test_api_gives_one_run_and_its_steps(lab: TestClient) -> None:
    answer = lab.get(f"/api/runs/{KILLED}").json()
    assert answer["run"]["run_id"] == KILLED
    assert [attempt["status"] for attempt in answer["attempts"]] == ["lost", "preempted", "finished"]
    first = lab.get(f"/api/runs/{KILLED}/steps?limit=150").json()
    rest = lab.get(f"/api/runs/{KILLED}/steps", params={"after": first["next_after"]}).json()
    assert [row["step"] for row in first["steps"] + rest["steps"]] == list(range(1, 201))
    assert rest["next_after"] is None


def test_api_compares_with_the_chosen_reference(lab: TestClient) -> None:
    answer = lab.get("/api/speedup", params={"recipe": "squad", "provenance": "measured"}).json()
    by_size = {(item["group"]["setting"]["parallel"], item["group"]["setting"]["world_size"]): item for item in answer}
    assert by_size["ddp", 2]["reference"] == by_size["none", 1]["group"]["key"]
    assert by_size["ddp", 2]["ratio"]["kind"] == "speedup"
    chosen = lab.get(
        "/api/speedup",
        params={"recipe": "squad", "provenance": "measured", "reference": by_size["ddp", 2]["group"]["key"]},
    ).json()
    assert {item["reference"] for item in chosen} == {by_size["ddp", 2]["group"]["key"]}
    assert all(item["samples_per_s"] > 0 for item in lab.get("/api/throughput").json())


def test_api_returns_utilization_percentiles_and_balance_of_a_run(lab: TestClient) -> None:
    answer = lab.get(f"/api/runs/{KILLED}").json()
    speed, used = answer["speed"], answer["utilization"]
    assert 0 < speed["step_time_p50_s"] < speed["step_time_p95_s"]
    assert 1 < speed["token_imbalance"] < 1.05
    assert 0 < used["mfu"] < used["mfu_padded"] < 1
    assert used["padded_tokens_per_s"] == pytest.approx(answer["run"]["tokens_per_s"] * speed["padding_factor"])
    assert answer["run"]["peak_reserved_bytes"] == 13 * 2**30
    assert [attempt["num_timed_steps"] for attempt in answer["attempts"]] == [125, 55, 35]


def test_api_returns_the_throughput_of_the_page(lab: TestClient) -> None:
    answer = lab.get("/api/throughput", params={"recipe": "squad", "provenance": "measured"}).json()
    assert answer
    for item in answer:
        size = item["group"]["setting"]["world_size"]
        assert item["samples_per_s_per_device"] == pytest.approx(item["samples_per_s"] / size)
        assert 0 < item["utilization"]["mfu"] < 1
        assert item["steps"]["num_steps"] > 0
    assert len(lab.get("/api/throughput?limit=2").json()) == 2


def test_api_gives_traces(lab: TestClient) -> None:
    (key,) = lab.get(f"/api/runs/{KILLED}").json()["profiles"]
    newest = lab.get(f"/api/runs/{KILLED}/profile").json()
    assert {name: newest[name] for name in key} == key
    assert newest["summary"]["devices"][0]["compute_us"] > 0
    asked = {name: key[name] for name in ("attempt", "node_rank", "line")}
    assert lab.get(f"/api/runs/{KILLED}/profile", params=asked).json() == newest
    assert lab.get(f"/api/runs/{KILLED}/profile", params=asked | {"attempt": 1}).status_code == 404
    page = lab.get("/api/profiler").json()
    assert page["num_matching"] == len(page["rows"]) > 3
    assert next(row for row in page["rows"] if row["run_id"] == KILLED)["profile"] == newest


def test_api_describes_itself(lab: TestClient) -> None:
    paths = lab.get("/api/openapi.json").json()["paths"]
    assert {"/api/runs", "/api/runs/{run_id}", "/api/runs/{run_id}/steps", "/api/speedup", "/api/throughput"} <= set(
        paths
    )
    assert not [path for path in paths if path.startswith(("/runs", "/figures", "/static"))]
    assert lab.get("/docs").status_code == 404


def test_health_counts_runs(lab: TestClient) -> None:
    assert lab.get("/healthz").json() == {"status": "ok", "num_runs": 40}


def test_health_fails_without_a_database(tmp_path: Path) -> None:
    with client_on(tmp_path) as client:
        engine: Engine = client.app.state.engine  # type: ignore[attr-defined]
        with engine.begin() as connection:
            connection.execute(text("ALTER TABLE runs RENAME TO elsewhere"))
        answer = client.get("/healthz")
    assert answer.status_code == 503
    assert answer.json()["status"].startswith("database: ")
