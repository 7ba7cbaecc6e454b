"""Data sets are found by name, directory, file and on the hub."""

import gzip
import json
import socket
from pathlib import Path
from typing import Any

import datasets
import pytest

from elasticqa.data.hub import Hub
from elasticqa.data.squad.dataset import DatasetPaths, resolve_dataset, write_splits
from elasticqa.data.squad.read import read_squad
from elasticqa.errors import ConfigError
from tests.support.squad_samples import document, write


@pytest.fixture
def no_hub() -> Hub:
    """Return a hub that refuses connections."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return Hub(endpoint=f"http://127.0.0.1:{free.getsockname()[1]}", is_offline=False)


def rows(path: Path) -> dict[str, list[Any]]:
    """Return the examples of a file as columns of the hub's SQuAD format."""
    examples = read_squad(path, for_training=True).examples
    return {
        "id": [e.id for e in examples],
        "title": [e.title for e in examples],
        "context": [e.context for e in examples],
        "question": [e.question for e in examples],
        "answers": [
            {"text": [a.text for a in e.answers], "answer_start": [a.start for a in e.answers]} for e in examples
        ],
    }


def test_demo_is_packaged_with_disjoint_splits(tmp_path: Path) -> None:
    paths = resolve_dataset("demo", None, tmp_path)
    assert paths.eval is not None
    train = read_squad(paths.train, for_training=True, strict=True)
    dev = read_squad(paths.eval, for_training=True, strict=True)
    assert not {e.context for e in train.examples} & {e.context for e in dev.examples}


@pytest.mark.parametrize(
    ("train", "dev"), [("train.json", "dev.json"), ("train-v1.1.json.gz", "dev-v1.1.json"), ("train.json", None)]
)
def test_directory_with_train_and_dev_files_is_found(tmp_path: Path, no_hub: Hub, train: str, dev: str | None) -> None:
    for name in filter(None, [train, dev, "LICENSE", "other.json"]):
        (tmp_path / name).write_bytes(b"")
    paths = resolve_dataset(str(tmp_path), None, tmp_path / "cache", no_hub)
    assert paths == DatasetPaths(tmp_path / train, tmp_path / dev if dev else None)


def test_directory_without_train_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "dev.json", document())
    with pytest.raises(ConfigError, match=r"has no train\*\.json"):
        resolve_dataset(str(tmp_path), None, tmp_path / "cache")


def test_directory_with_two_candidates_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "train-a.json", document())
    (tmp_path / "train-b.json.gz").write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(ConfigError, match=r"2 files train\*\.json \(train-a\.json, train-b\.json\.gz\)"):
        resolve_dataset(str(tmp_path), None, tmp_path / "cache")


def test_single_file_is_used_for_training_only(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.json", document())
    assert resolve_dataset(str(path), None, tmp_path / "cache") == DatasetPaths(path, None)


def test_eval_file_replaces_the_dev_split(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.json", document())
    assert resolve_dataset("demo", str(path), tmp_path / "cache").eval == path
    assert resolve_dataset(str(path), str(path), tmp_path / "cache").eval == path
    with pytest.raises(ConfigError, match=r"eval_file='absent\.json' is not a file"):
        resolve_dataset("demo", "absent.json", tmp_path / "cache")


@pytest.mark.parametrize("path", ["./absent", "/absent/squad", "absent.json", "some/absent.json.gz"])
def test_absent_path_is_not_looked_up_on_the_hub(tmp_path: Path, no_hub: Hub, path: str) -> None:
    with pytest.raises(ConfigError, match="there is no such file or directory"):
        resolve_dataset(path, None, tmp_path, no_hub)


def test_unreachable_hub_is_reported_with_a_way_out(tmp_path: Path, no_hub: Hub) -> None:
    with pytest.raises(ConfigError, match="cannot be reached") as refused:
        resolve_dataset("someone/squad", None, tmp_path, no_hub)
    message = str(refused.value)
    assert "\n" not in message
    assert "dataset='someone/squad'" in message
    assert "--dataset a SQuAD v1.1 file" in message
    assert "elasticqa prepare" in message


def test_rows_of_the_hub_have_the_same_examples_as_the_file(tmp_path: Path, no_hub: Hub) -> None:
    top = document()
    [second] = document()["data"]
    second["title"] = "Elbe"
    for question in second["paragraphs"][0]["qas"]:
        question["id"] += "-elbe"
    top["data"].append(second)
    path = write(tmp_path / "a.json", top)
    split = datasets.Dataset.from_dict(rows(path))
    write_splits({"train": split, "validation": split}, tmp_path / "cache" / "someone--squad", "someone/squad")
    paths = resolve_dataset("someone/squad", None, tmp_path / "cache", no_hub)
    assert paths.eval is not None
    expected = read_squad(path, for_training=True)
    assert len({e.article for e in expected.examples}) == 2
    assert read_squad(paths.train, for_training=True) == expected
    assert read_squad(paths.eval, for_training=True) == expected
    written = json.loads(paths.train.read_bytes())["data"]
    assert [(a["title"], len(a["paragraphs"])) for a in written] == [("Oder", 1), ("Elbe", 1)]


def test_rows_without_validation_have_no_eval_file(tmp_path: Path) -> None:
    split = datasets.Dataset.from_dict(rows(write(tmp_path / "a.json", document())))
    write_splits({"train": split}, tmp_path / "cache" / "mine", "mine")
    assert resolve_dataset("mine", None, tmp_path / "cache").eval is None


@pytest.mark.parametrize("column", ["id", "context", "question", "answers"])
def test_rows_without_a_column_are_refused(tmp_path: Path, column: str) -> None:
    columns = rows(write(tmp_path / "a.json", document()))
    del columns[column]
    with pytest.raises(ConfigError, match=f"has no column {column} in split train"):
        write_splits({"train": datasets.Dataset.from_dict(columns)}, tmp_path / "cache" / "mine", "mine")
    assert not (tmp_path / "cache" / "mine").exists()


def test_rows_without_train_are_refused(tmp_path: Path) -> None:
    split = datasets.Dataset.from_dict(rows(write(tmp_path / "a.json", document())))
    with pytest.raises(ConfigError, match=r"has splits \['test'\] and no train"):
        write_splits({"test": split}, tmp_path / "mine", "mine")
