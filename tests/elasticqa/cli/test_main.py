"""The command `elasticqa`: what it starts, and what it does not load."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from elasticqa.cli.main import COMMANDS, main, usage
from tests.support.processes import piped, run_python

HEAVY = ("torch", "transformers", "datasets", "sqlalchemy", "fastapi", "plotly", "numpy", "tyro")
MODEL_CODE = (
    "elasticqa.models.question_answering",
    "elasticqa.training.main",
    "sklearn",
    "torch._dynamo",
    "torch.distributed.fsdp",
    "transformers.generation.utils",
    "transformers.modeling_utils",
)


def run(*argv: str, program: str | None = None) -> subprocess.CompletedProcess[str]:
    return run_python(*(["-m", "elasticqa.cli.main"] if program is None else ["-c", program]), *argv)


@pytest.mark.parametrize("argv", [[], ["--help"], ["no-such-command"]])
def test_help_and_refusals_import_no_heavy_module(argv: list[str]) -> None:
    program = (
        "import json, sys; from elasticqa.cli.main import main; sys.stdout = sys.stderr; status = main(sys.argv[1:])\n"
    )
    program += "sys.__stdout__.write(json.dumps([status, sorted(sys.modules)]))"
    status, modules = json.loads(run(*argv, program=program).stdout)
    assert status == (2 if argv == ["no-such-command"] else 0)
    assert "elasticqa.cli.main" in modules
    assert [name for name in HEAVY if name in modules] == []


def test_launch_imports_no_model_code() -> None:
    program = "import json, sys; from elasticqa.cli.launch import main; print(json.dumps(sorted(sys.modules)))"
    modules = json.loads(run(program=program).stdout)
    assert "elasticqa.cli.launch" in modules
    assert [name for name in MODEL_CODE if name in modules] == []


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"]])
def test_help_lists_every_command(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 0
    assert capsys.readouterr().out == usage()
    for name, (_, text) in COMMANDS.items():
        assert f"  {name} " in usage()
        assert text in usage()


def test_unknown_command_is_one_line_and_status_2() -> None:
    done = run("trian")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("elasticqa: 'trian' is not a command: use one of train, ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_command_has_a_module_with_help_of_its_own(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(importlib.import_module(COMMANDS[name][0]).main)
    with pytest.raises(SystemExit) as ended:
        sys.exit(main([name, "--help"]))
    assert ended.value.code == 0
    assert name in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_wrong_option_of_a_command_is_one_line_and_status_2(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        sys.exit(main([name, "--no-such-option"]))
    assert ended.value.code == 2
    stderr = capsys.readouterr().err
    assert stderr.startswith("elasticqa")
    assert len(stderr.splitlines()) == 1


def test_command_gets_the_arguments_and_sets_the_status(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text("not a trace", encoding="utf-8")
    done = run("profile", str(tmp_path / "trace.json"))
    assert done.returncode == 2
    assert done.stderr.startswith("elasticqa profile: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("argv", [["--help"], ["profile", "--help"]])
def test_closed_output_pipe_is_no_error(argv: list[str]) -> None:
    command = [sys.executable, "-m", "elasticqa.cli.main", *argv]
    with piped(*command, stderr=subprocess.PIPE) as (process, output):
        output.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert process.wait(timeout=120) == 0
