"""Find a data set: the packaged demo, SQuAD files, or a data set on the Hugging Face hub."""

import importlib
import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from db.storage.file_lock import locked
from elasticqa.data.hub import Hub, is_path
from elasticqa.errors import ConfigError, first_line, shown

DEMO = Path(__file__).parent / "demo"
_SUFFIXES = (".json", ".json.gz")
_COLUMNS = ("id", "context", "question", "answers")


@dataclass(frozen=True)
class DatasetPaths:
    """SQuAD v1.1 files of a data set; ``eval`` is None if it has nothing to evaluate on."""

    train: Path
    eval: Path | None


def resolve_dataset(name_or_path: str, eval_file: str | None, cache_dir: Path, hub: Hub | None = None) -> DatasetPaths:
    """Return the files of a data set; those of a hub data set are written to ``cache_dir`` once, then reused.

    It is `demo`, a directory with one train*.json and at most one dev*.json (.gz allowed), a file, or the name of a
    data set in SQuAD format on the hub. ``eval_file`` replaces the file to evaluate on.

    Raises:
        ConfigError: the data set cannot be found, within five seconds, or cannot be used.
    """
    path = Path(name_or_path).expanduser()
    dev: Path | None
    if name_or_path == "demo":
        train, dev = DEMO / "train.json", DEMO / "dev.json"
    elif path.is_dir():
        train, dev = _in_directory(path)
    elif path.is_file():
        train, dev = path, None
    elif is_path(name_or_path) or name_or_path.endswith(_SUFFIXES):
        raise _not_found(name_or_path, "there is no such file or directory")
    else:
        train, dev = _in_directory(_from_hub(name_or_path, cache_dir, hub or Hub()))
    if eval_file is not None:
        dev = Path(eval_file).expanduser()
        if not dev.is_file():
            raise ConfigError(f"eval_file={shown(eval_file)} is not a file: give a SQuAD v1.1 file as --eval-file")
    return DatasetPaths(train, dev)


def _not_found(dataset: str, reason: str) -> ConfigError:
    return ConfigError(
        f"dataset={shown(dataset)} cannot be found: {reason}; give --dataset a SQuAD v1.1 file or a directory with "
        "train*.json and dev*.json, or run `elasticqa prepare` where the hub can be reached"
    )


def _in_directory(folder: Path) -> tuple[Path, Path | None]:
    train, dev = _only(folder, "train"), _only(folder, "dev")
    if train is None:
        raise ConfigError(f"dataset={shown(str(folder))} has no train*.json or train*.json.gz: give --dataset a file")
    return train, dev


def _only(folder: Path, split: str) -> Path | None:
    found = sorted(path for suffix in _SUFFIXES for path in folder.glob(f"{split}*{suffix}"))
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise ConfigError(
            f"dataset={shown(str(folder))} has {len(found)} files {split}*.json ({names}): give --dataset the file to "
            "train on, and --eval-file the one to evaluate on"
        )
    return found[0] if found else None


def _from_hub(name: str, cache_dir: Path, hub: Hub) -> Path:
    """Return the directory with the data set as files; the first process downloads them."""
    folder = cache_dir / name.replace("/", "--")
    with locked(cache_dir / f"{folder.name}.lock"):
        if not folder.is_dir():
            # If HF_HUB_OFFLINE is set, the `datasets` library can still read its own cache.
            reason = None if hub.is_offline else hub.why_unavailable("datasets", name)
            if reason:
                raise _not_found(name, reason)
            library = importlib.import_module("datasets")
            try:
                splits = library.load_dataset(name)
            except (OSError, ValueError, library.exceptions.DatasetsError) as error:
                raise _not_found(name, first_line(error)) from error
            write_splits(splits, folder, name)
    return folder


def write_splits(splits: Mapping[str, Any], folder: Path, name: str) -> None:
    """Write the splits of a ``datasets`` data set as SQuAD JSON, atomically.

    Raises:
        ConfigError: there is no split ``train``, or a split lacks a column of the SQuAD format.
    """
    if "train" not in splits:
        raise ConfigError(f"dataset={shown(name)} has splits {sorted(splits)} and no train: use another data set")
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    for split, file_name in (("train", "train.json"), ("validation", "dev.json")):
        if split not in splits:
            continue
        missing = [column for column in _COLUMNS if column not in splits[split].column_names]
        if missing:
            raise ConfigError(
                f"dataset={shown(name)} has no column {missing[0]} in split {split}: the SQuAD format has "
                f"{', '.join(_COLUMNS)}; convert it to a SQuAD v1.1 file"
            )
        document = {"version": "1.1", "data": _articles(splits[split])}
        (unfinished / file_name).write_text(json.dumps(document), encoding="utf-8")
    unfinished.rename(folder)


def _articles(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return articles with paragraphs: consecutive rows with equal titles, then with equal contexts, are grouped."""
    return [
        {
            "title": title,
            "paragraphs": [
                {"context": context, "qas": [_question(row) for row in of_context]}
                for context, of_context in groupby(of_title, key=lambda row: row["context"])
            ],
        }
        for title, of_title in groupby(rows, key=lambda row: row.get("title") or "")
    ]


def _question(row: Mapping[str, Any]) -> dict[str, Any]:
    answers = row["answers"]
    return {
        "id": str(row["id"]),
        "question": row["question"],
        "answers": [
            {"text": text, "answer_start": start}
            for text, start in zip(answers["text"], answers["answer_start"], strict=True)
        ],
    }
