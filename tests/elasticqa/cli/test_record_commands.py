import json
from pathlib import Path

import pytest

from elasticqa.cli import report as report_command
from elasticqa.cli import runs as runs_command
from elasticqa.cli import show as show_command
from tests.support.dashboard_data import ulid
from tests.support.report_runs import write_home


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_home(tmp_path_factory.mktemp("home"))


@pytest.fixture
def environ(home: Path) -> dict[str, str]:
    return {"ELASTICQA_HOME": str(home)}


def test_runs_are_listed_filtered_and_sorted(environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--provenance", "measured", "--sort", "wall_clock_s", "--ascending", "--limit", "2", "--json"]
    assert runs_command.main(arguments, environ) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["run_id"] for row in rows] == [ulid(10), ulid(11)]
    assert runs_command.main(["--provenance", "measured"], environ) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 6 + 1
    assert lines[-1] == "6 of 6 runs"
    assert not any("\x1b" in line for line in lines)


def test_show_prints_a_run_as_text_and_as_json(environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert show_command.main([ulid(10), "--json"], environ) == 0
    whole = json.loads(capsys.readouterr().out)
    assert (whole["run_id"], whole["world_size"], len(whole["attempts"])) == (ulid(10), 2, 1)
    assert show_command.main([ulid(10)], environ) == 0
    text = capsys.readouterr().out
    assert f"wall clock (s)     {whole['wall_clock_s']:,.1f}\n" in text
    assert "wall clock by kind of work" in text


@pytest.mark.parametrize("name", ["markdown", "latex", "html"])
def test_report_command_writes_every_format(environ: dict[str, str], tmp_path: Path, name: str) -> None:
    target = tmp_path / "report"
    assert report_command.main([ulid(10), "--format", name, "-o", str(target)], environ) == 0
    assert "Training runs" in target.read_text(encoding="utf-8")


def test_wrong_requests_are_one_line(
    environ: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show_command.main(["nothing"], environ) == 2
    assert report_command.main(["nothing"], environ) == 2
    assert report_command.main(["-o", str(tmp_path / "absent" / "report")], environ) == 2
    assert runs_command.main([], {"ELASTICQA_HOME": str(tmp_path), "ELASTICQA_DB_URL": "sqlite:////proc/x/y.db"}) == 2
    assert capsys.readouterr().err.count("\n") == 4
    for main, arguments in ((runs_command.main, ["--limit", "0"]), (report_command.main, ["--format", "pdf"])):
        with pytest.raises(SystemExit) as caught:
            main(arguments, environ)
        assert caught.value.code == 2
        assert capsys.readouterr().err.count("\n") == 1
