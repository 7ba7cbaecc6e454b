"""Fixtures shared by all tests."""

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder with real SQuAD, XQuAD and traces, or skip the test where it is absent.

    `ELASTICQA_REQUIRE_DATA=1` (set by `.ci/run`) turns the skip into a failure.
    """
    folder = Path(os.environ.get("ELASTICQA_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
    if not (folder / "squad" / "train-v1.1.json.gz").is_file():
        message = f"no real data at {folder}: set ELASTICQA_TEST_DATA to the folder that holds squad/ and xquad/"
        if os.environ.get("ELASTICQA_REQUIRE_DATA") == "1":
            pytest.fail(message)
        pytest.skip(message)
    return folder
