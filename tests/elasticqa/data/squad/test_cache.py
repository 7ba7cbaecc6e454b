"""Features are built once, written atomically, and built again if they are damaged."""

import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedTokenizerBase

from elasticqa.data.squad.cache import CachedFeatures, FeatureRequest, load_or_build
from elasticqa.data.squad.features import Features, Windowing, build_features
from elasticqa.data.squad.read import read_squad
from elasticqa.errors import DataError
from tests.support.squad_samples import bert_tokenizer, document, mpnet_tokenizer, write

COLUMNS = [field.name for field in fields(Features)]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return bert_tokenizer()


@pytest.fixture
def request_(tmp_path: Path) -> FeatureRequest:
    return FeatureRequest(write(tmp_path / "a.json", document()), for_training=True, windowing=Windowing(40, 8))


def folders(cache_dir: Path) -> list[Path]:
    return sorted(path for path in cache_dir.iterdir() if path.is_dir())


def assert_equal_to_built(cached: CachedFeatures, request: FeatureRequest, tokenizer: PreTrainedTokenizerBase) -> None:
    data = read_squad(request.path, for_training=True)
    built = build_features(data.examples, tokenizer, request.windowing)
    for name in COLUMNS:
        found, expected = getattr(cached.features, name), getattr(built, name)
        assert found.dtype == expected.dtype
        assert np.array_equal(found, expected)


def test_cached_features_equal_built_ones(
    request_: FeatureRequest, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    first = load_or_build(request_, tokenizer, tmp_path / "cache")
    assert_equal_to_built(first, request_, tokenizer)
    assert (first.num_examples, first.num_skipped_examples) == (4, 0)
    [folder] = folders(tmp_path / "cache")
    before = folder.stat()
    again = load_or_build(request_, tokenizer, tmp_path / "cache")
    assert_equal_to_built(again, request_, tokenizer)
    assert again.digest == first.digest
    assert (folder.stat().st_ino, folder.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_columns_are_memory_mapped(
    request_: FeatureRequest, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    cached = load_or_build(request_, tokenizer, tmp_path / "cache")
    assert type(cached.features.input_ids) is np.ndarray
    maps = Path("/proc/self/maps").read_text()
    for name in COLUMNS:
        assert f"{folders(tmp_path / 'cache')[0]}/{name}.npy" in maps
        assert not getattr(cached.features, name).flags.writeable


def test_skipped_and_limited_examples_are_counted(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    top = document()
    top["data"][0]["paragraphs"][0]["qas"][0]["answers"][0]["answer_start"] += 1
    request = FeatureRequest(write(tmp_path / "a.json", top), True, Windowing(), max_examples=2)
    cached = load_or_build(request, tokenizer, tmp_path / "cache")
    assert (cached.num_examples, cached.num_skipped_examples) == (2, 1)
    assert cached.features.example_index.tolist() == [0, 1]
    with pytest.raises(DataError, match="is not at offset"):
        load_or_build(replace(request, strict=True), tokenizer, tmp_path / "cache")


def other_content(request: FeatureRequest) -> FeatureRequest:
    top = document()
    top["data"][0]["paragraphs"][0]["qas"].pop()
    return replace(request, path=write(request.path.with_name("b.json"), top))


@pytest.mark.parametrize(
    "change",
    [
        other_content,
        lambda request: replace(request, windowing=Windowing(41, 8)),
        lambda request: replace(request, windowing=Windowing(40, 9)),
        lambda request: replace(request, for_training=False),
        lambda request: replace(request, max_examples=3),
        lambda request: replace(request, strict=True),
    ],
)
def test_another_request_builds_its_own_features(
    request_: FeatureRequest,
    tokenizer: PreTrainedTokenizerBase,
    tmp_path: Path,
    change: Callable[[FeatureRequest], FeatureRequest],
) -> None:
    load_or_build(request_, tokenizer, tmp_path / "cache")
    load_or_build(change(request_), tokenizer, tmp_path / "cache")
    assert len(folders(tmp_path / "cache")) == 2


def test_another_tokenizer_builds_its_own_features(
    request_: FeatureRequest, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    ids = {
        tuple(load_or_build(request_, each, tmp_path / "cache").features.input_ids.tolist())
        for each in (tokenizer, mpnet_tokenizer())
    }
    assert len(ids) == len(folders(tmp_path / "cache")) == 2


def test_file_of_the_same_content_shares_features(
    request_: FeatureRequest, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    load_or_build(request_, tokenizer, tmp_path / "cache")
    moved = replace(request_, path=write(tmp_path / "moved.json", document()))
    load_or_build(moved, tokenizer, tmp_path / "cache")
    assert len(folders(tmp_path / "cache")) == 1


def truncate(folder: Path) -> None:
    path = folder / "input_ids.npy"
    path.write_bytes(path.read_bytes()[:-8])


def flip_a_bit(folder: Path) -> None:
    path = folder / "char_offsets.npy"
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated": truncate,
    "flipped bit": flip_a_bit,
    "empty column": lambda folder: (folder / "offsets.npy").write_bytes(b""),
    "missing column": lambda folder: (folder / "offsets.npy").unlink(),
    "missing meta": lambda folder: (folder / "meta.json").unlink(),
    "truncated meta": lambda folder: (folder / "meta.json").write_text('{"checksums": {'),
    "meta of another kind": lambda folder: (folder / "meta.json").write_text("[]"),
    "meta without keys": lambda folder: (folder / "meta.json").write_text("{}"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_cache_is_built_again(
    request_: FeatureRequest, tokenizer: PreTrainedTokenizerBase, tmp_path: Path, damage: str
) -> None:
    load_or_build(request_, tokenizer, tmp_path / "cache")
    [folder] = folders(tmp_path / "cache")
    DAMAGES[damage](folder)
    assert_equal_to_built(load_or_build(request_, tokenizer, tmp_path / "cache"), request_, tokenizer)
    assert folders(tmp_path / "cache") == [folder]
    assert set(json.loads((folder / "meta.json").read_bytes())["checksums"]) == set(COLUMNS)


def test_refused_file_leaves_no_cache_folder(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    request = FeatureRequest(write(tmp_path / "a.json", []), for_training=True, windowing=Windowing())
    with pytest.raises(DataError):
        load_or_build(request, tokenizer, tmp_path / "cache")
    assert folders(tmp_path / "cache") == []


def test_absent_file_is_refused(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    request = FeatureRequest(tmp_path / "absent.json", for_training=True, windowing=Windowing())
    with pytest.raises(DataError, match="No such file"):
        load_or_build(request, tokenizer, tmp_path / "cache")
