import json
import subprocess
import sys
from pathlib import Path

import pytest

from elasticqa.cli.profile import main
from elasticqa.profiling.trace.summary import summarize
from tests.support.traces import kernel, operator, write_trace


def _trace(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "trace.json.gz", [operator("aten::mm", 0, 10), kernel("gemm", 5, 10)])


def test_profile_prints_the_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(_trace(tmp_path))]) == 0
    assert capsys.readouterr().out.startswith("Trace, 0.015 ms, 2 events\n")


def test_profile_json_equals_the_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = _trace(tmp_path)
    assert main([str(trace), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(summarize(trace).to_dict()))


@pytest.mark.parametrize("content", [b"", b"junk", b'{"traceEvents": []}', b"\x1f\x8b\x08"])
def test_profile_of_another_file_is_one_line_and_status_2(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.json"
    trace.write_bytes(content)
    assert main([str(trace)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"elasticqa profile: {trace}")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("argv", [[], ["a", "b"], ["a", "--yaml"]])
def test_profile_wrong_request_is_one_line_and_status_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_profile_does_not_import_torch() -> None:
    code = "import sys, elasticqa.cli.profile; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
