import gzip
import json
import tracemalloc
from pathlib import Path

import pytest

from db.storage import json_stream
from elasticqa.profiling.trace import scan as scanner
from elasticqa.profiling.trace.scan import Entry, TraceError, scan
from tests.support.traces import operator, write_trace


def _error(path: Path) -> TraceError:
    with pytest.raises(TraceError) as caught:
        list(scan(path))
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    return caught.value


def _written(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "trace.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_scan_yields_entries_and_events_in_order(tmp_path: Path, name: str) -> None:
    events = [operator("aten::mm", 1, 2), operator("aten::add", 4, 1)]
    path = write_trace(tmp_path / name, events, distributedInfo={"rank": 3})
    entries = [(key, value) for key, value, _ in scan(path)]
    assert entries == [
        ("schemaVersion", 1),
        ("distributedInfo", {"rank": 3}),
        ("traceEvents", events[0]),
        ("traceEvents", events[1]),
    ]


def test_scan_reads_a_bare_list_of_events(tmp_path: Path) -> None:
    assert list(scan(_written(tmp_path, ' [ {"ph": "X"} , {} ] '))) == [
        Entry("traceEvents", {"ph": "X"}, 3),
        Entry("traceEvents", {}, 17),
    ]


def test_scan_position_points_at_the_value(tmp_path: Path) -> None:
    content = '{"a": 1, "traceEvents": [{"name": "é"}, {"name": "x"}]}'
    positions = [entry.position for entry in scan(_written(tmp_path, content))]
    assert [content[position : position + 9] for position in positions] == ['1, "trace', '{"name": ', '{"name": ']


@pytest.mark.parametrize("content", ["{}", "[]", '{"traceEvents": []}', '{"traceEvents": [], "a": null}'])
def test_scan_of_a_trace_without_events_yields_none(tmp_path: Path, content: str) -> None:
    assert not [entry for entry in scan(_written(tmp_path, content)) if entry.key == "traceEvents"]


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64])
def test_scan_does_not_depend_on_where_chunks_end(tmp_path: Path, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    document = {"traceEvents": [{"ts": 12345.678, "name": 'a"\\}é', "args": {"n": [1, -2e3, None]}}], "last": 123456}
    path = _written(tmp_path, json.dumps(document, ensure_ascii=False))
    whole = list(scan(path))
    monkeypatch.setattr(json_stream, "_CHUNK_BYTES", chunk)
    assert list(scan(path)) == whole
    assert whole[-1].value == 123456


def test_scan_keeps_control_characters_and_replaces_invalid_utf8(tmp_path: Path) -> None:
    path = _written(tmp_path, b'{"traceEvents": [{"name": "a\tb\xff"}]}')
    assert [entry.value["name"] for entry in scan(path)] == ["a\tb\ufffd"]


def test_scan_refuses_a_truncated_trace(tmp_path: Path) -> None:
    content = json.dumps({"a": [1], "traceEvents": [{"ts": 1.5, "name": "x"}, {}]})
    for end in range(len(content)):
        error = _error(_written(tmp_path, content[:end]))
        assert error.position is not None
        assert error.position <= end


def test_scan_refuses_a_truncated_compressed_trace(tmp_path: Path) -> None:
    content = gzip.compress(json.dumps({"traceEvents": [{"ts": n, "name": "x"} for n in range(20)]}).encode())
    for end in range(len(content)):
        _error(_written(tmp_path, content[:end]))


def test_scan_refuses_damaged_compression(tmp_path: Path) -> None:
    content = bytearray(gzip.compress(json.dumps({"traceEvents": list(range(5000))}).encode()))
    content[len(content) // 2] ^= 0xFF
    assert "decompressed" in _error(_written(tmp_path, bytes(content))).rule


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        ("", "cut off"),
        ("\x00\x01\x02", "a trace is a JSON object"),
        ("hello", "a trace is a JSON object"),
        ("{1: 2}", "a key of an object"),
        ('{"a" 1}', "':'"),
        ('{"a": 1 "b": 2}', "',' or '}'"),
        ('{"traceEvents": {}}', "is not a list"),
        ('{"traceEvents": [{} {}]}', "',' or ']'"),
        ('{"traceEvents": [{"a": tru}]}', "Expecting value"),
        ('{"traceEvents": []} {}', "follows the end"),
        ('{"traceEvents": [' + "[" * 100_000, "nested too deep"),
        ('{"traceEvents": [' + "1" * 5000 + "]}", "cannot be read"),
    ],
)
def test_scan_names_the_damage(tmp_path: Path, content: str, rule: str) -> None:
    assert rule in _error(_written(tmp_path, content)).rule


def test_scan_names_the_position_of_damage_in_a_later_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "_CHUNK_BYTES", 10)
    content = '{"traceEvents": [{"name": "aaaaaaaaaaaaaaaa"}, {"name": "b"} oops]}'
    assert _error(_written(tmp_path, content)).position == content.index("oops")


def test_scan_refuses_a_value_over_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanner, "MAX_VALUE_CHARS", 1000)
    monkeypatch.setattr(json_stream, "_CHUNK_BYTES", 100)
    path = _written(tmp_path, '{"traceEvents": ["' + "a" * 100_000 + '"]}')
    assert "no JSON value within 1,000" in _error(path).rule


@pytest.mark.parametrize("name", ["absent.json", ""])
def test_scan_refuses_a_file_that_cannot_be_opened(tmp_path: Path, name: str) -> None:
    assert "cannot be opened" in _error(tmp_path / name).rule


def test_scan_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    event = json.dumps({"ph": "M", "name": "process_name", "args": {"name": "x" * 400}})
    path = tmp_path / "trace.json.gz"
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write('{"traceEvents": [' + event)
        for _ in range(60_000):
            file.write("," + event)
        file.write("]}")
    tracemalloc.start()
    try:
        count = sum(1 for _ in scan(path))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 60_001
    assert peak < 8 << 20  # the text has 27 MiB
