"""`elasticqa checkpoints`: states, marks and exit status."""

import json
from pathlib import Path

import pytest

from elasticqa.checkpoint.retention import note_best, set_aside
from elasticqa.cli.checkpoints import main
from tests.support.checkpoints import commit, tear
from tests.support.processes import run_python


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home with a run of six checkpoints: two whole, one torn, one flipped, one bare, one set aside."""
    directory = tmp_path / "runs" / "RUN" / "checkpoints"
    for step in (1, 2, 3, 4, 5, 6):
        commit(directory, step)
    note_best(directory, 1, 80.0)
    set_aside(directory, 5)
    tear(directory / "step-00000003")
    (directory / "step-00000004" / "__0_0.distcp").write_bytes(b"y" * 100)
    (directory / "step-00000005" / "manifest.json").unlink()
    return tmp_path


def rows(home: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> dict[int, dict[str, object]]:
    assert main(["RUN", "--json", *flags], {"ELASTICQA_HOME": str(home)}) == int("--verify" in flags)
    return {row["step"]: row for row in json.loads(capsys.readouterr().out)}


def test_state_of_every_checkpoint_is_listed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(home, capsys, "--verify")
    states = {step: row["state"] for step, row in found.items()}
    assert states == {6: "whole", 5: "torn", 4: "flipped", 3: "torn", 2: "whole", 1: "whole"}
    assert [step for step, row in found.items() if row["is_newest"]] == [2]
    assert [step for step, row in found.items() if row["is_best"]] == [1]
    assert [step for step, row in found.items() if row["is_set_aside"]] == [6]
    assert (found[2]["bytes"], found[2]["reason"], found[5]["bytes"]) == (100, "final", None)


def test_checksums_are_compared_with_verify_only(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(home, capsys)
    assert found[4]["state"] == "whole"
    assert found[4]["is_newest"]


def test_table_has_directory_and_marks(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["RU"], {"ELASTICQA_HOME": str(home)}) == 0
    assert "flipped" not in capsys.readouterr().out
    assert main(["RU", "--verify"], {"ELASTICQA_HOME": str(home)}) == 1
    shown = capsys.readouterr().out
    for part in ("newest", "best", "flipped", "set-aside/step-00000006", str(home)):
        assert part in shown


def test_unknown_run_is_one_line_and_status_2(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nowhere"], {"ELASTICQA_HOME": str(home)}) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_command_does_not_import_torch(home: Path) -> None:
    program = (
        "import sys; from elasticqa.cli.checkpoints import main\n"
        f"main(['RUN', '--verify'], {{'ELASTICQA_HOME': {str(home)!r}}}); sys.exit('torch' in sys.modules)"
    )
    done = run_python("-c", program)
    assert done.returncode == 0, done.stderr
