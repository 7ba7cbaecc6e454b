import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from db.importers.fields import ImportFormatError
from db.importers.hf_trainer import MAX_VALUE_CHARS, members, small_object

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("json") / "file.json"


@given(content=st.dictionaries(st.text(), JSON, max_size=5), indent=st.sampled_from([None, 1]))
def test_members_are_those_of_the_whole_object(path: Path, content: dict[str, object], indent: int | None) -> None:
    path.write_text(json.dumps(content, indent=indent))
    assert {key: value for key, _, value in members(path)} == content


@given(entries=st.lists(JSON, max_size=8))
def test_streamed_array_comes_entry_by_entry(path: Path, entries: list[object]) -> None:
    path.write_text(json.dumps({"before": 1, "log": entries, "after": [2]}))
    found = list(members(path, streamed=("log",)))
    assert found[0] == ("before", None, 1)
    assert found[1:-1] == [("log", index, entry) for index, entry in enumerate(entries)]
    assert found[-1] == ("after", None, [2])


def test_values_across_chunks_stay_whole(path: Path) -> None:
    numbers = [1234567890 + index for index in range(40_000)]
    path.write_text(json.dumps({"numbers": numbers, "text": "é" * 70_000}))
    found = list(members(path, streamed=("numbers",)))
    assert [value for key, _, value in found if key == "numbers"] == numbers
    assert found[-1] == ("text", None, "é" * 70_000)


def test_gzip_is_read_under_any_name(path: Path) -> None:
    path.write_bytes(gzip.compress(b'{"a": 1}'))
    assert list(members(path)) == [("a", None, 1)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "found the end"),
        (b"[1]", "expected '{', found '['"),
        (b'{"a": 1', "found the end"),
        (b'{"a" 1}', "expected ':', found '1'"),
        (b'{"a": 1} x', "follows the end"),
        (b"{1: 1}", "a key of an object must be a string"),
        (b'{"a": nope}', "no JSON value"),
        (b'{"a": ' + b"[" * 200_000, "nested too deep"),
        (b'{"a": ' + b"9" * 5_000 + b"}", "cannot be read"),
        (b'{"a": "\xff"}', "is not UTF-8"),
        (b"\x00\x01\x02" * 100, "expected '{'"),
        (b'{"a": "' + b"x" * 2 * MAX_VALUE_CHARS + b'"}', "no JSON value within 1,048,576"),
        (gzip.compress(b'{"a": 1}' * 1_000)[:40], "damaged or cut off"),
    ],
)
def test_damaged_json_is_one_line_error(path: Path, content: bytes, message: str) -> None:
    path.write_bytes(content)
    with pytest.raises(ImportFormatError) as caught:
        list(members(path))
    assert message in str(caught.value)
    assert str(caught.value).count("\n") == 0
    assert len(str(caught.value)) < 500


@pytest.mark.slow
def test_decompression_bomb_is_refused_at_the_limit(path: Path) -> None:
    with gzip.open(path, "wb", compresslevel=1) as stream:
        for _ in range(300):
            stream.write(b" " * 2**20)
    with pytest.raises(ImportFormatError, match="more than 256 MiB"):
        list(members(path))


def test_large_results_file_is_refused_unread(path: Path) -> None:
    path.write_text(" " * (MAX_VALUE_CHARS + 1))
    with pytest.raises(ImportFormatError, match="at most 1 MiB"):
        small_object(path)
