"""Dashboards shared by all tests of pages."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient

from tests.support.dashboard_data import AttemptSpec, RunSpec, ulid, write_run
from tests.support.dashboard_homes import HOSTILE, NOW, client_on
from tests.support.dashboard_lab import ANSWERS, write_lab
from tests.support.dashboard_traces import hostile_profile


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    home = tmp_path_factory.mktemp("lab")
    write_lab(home / "runs", NOW)
    with client_on(home) as client:
        yield client


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Return a dashboard over runs in which every text is an attack."""
    home = tmp_path_factory.mktemp("hostile")
    spec = RunSpec(
        ulid(1),
        (AttemptSpec(1, 60, NOW - 500, "failed", HOSTILE),),
        name=HOSTILE,
        tags=(HOSTILE,),
        recipe=HOSTILE,
        parallel="ddp",
        device_name=HOSTILE,
        torch=HOSTILE,
        settings={HOSTILE: HOSTILE},
        profile=hostile_profile(HOSTILE),
        answers=({**ANSWERS[0], "question": HOSTILE, "context": HOSTILE * 9, "prediction": HOSTILE, "id": HOSTILE},),
    )
    write_run(home / "runs", spec)
    with client_on(home, replace(spec, run_id=ulid(2), attempts=(AttemptSpec(1, 60, NOW - 400),))) as client:
        yield client
