"""`elasticqa scaling` from its command line."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from elasticqa.cli.scaling import main
from tests.support import training
from tests.support.dashboard_homes import client_on
from tests.support.paths import REPOSITORY
from tests.support.processes import TIMEOUT_S, until
from tests.support.processes import run as run_command

FLAGS = (
    "--max-length=160", "--doc-stride=32", "--global-batch-size=7", "--micro-batch-size=3", "--learning-rate=1e-3",
    "--log-every-s=0", "--no-eval-before", "--dropout=0", "--epochs=3",
)  # fmt: skip
STUDY = ("--strategies=ddp", "--nproc-per-node=2", "--repeats=1", "--cpus-per-process=1", "--scheduler=local_cwd")


@pytest.fixture
def flags(tiny_model: Path, tiny_squad: Path) -> list[str]:
    return ["--", f"--model={tiny_model}", f"--dataset={tiny_squad}", *FLAGS]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ELASTICQA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path / "home"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--strategies=dpp"], "'dpp' is not one of ddp, fsdp"),
        (["--nodes=0"], "--nodes='0' is not a list of numbers"),
        (["--nproc-per-node=1,x"], "--nproc-per-node='1,x' is not a list"),
        (["-cfg", "partition=gpu"], "-cfg 'partition=gpu' is not an option of local_cwd"),
        (["--mode=weak"], "ddp-1x2-weak needs 2 times the features"),
        (["--nproc-per-node=8"], "global_batch_size=7 cannot feed world_size=8"),
        (["--table=01"], "study '01' is not in"),
        (["--continue=01"], "there are no studies yet"),
    ],
)
def test_wrong_request_is_refused_in_one_line_without_a_study(
    arguments: list[str], message: str, home: Path, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--strategies=ddp", "--nproc-per-node=2", "--cpus-per-process=1", *arguments]
    assert main([*asked, *flags], os.environ) == 2
    printed = capsys.readouterr()
    (line,) = [line for line in printed.err.splitlines() if "they share them" not in line]
    assert line.startswith("elasticqa scaling: ")
    assert message in line
    assert printed.out == ""
    assert not [path for path in home.rglob("*") if path.parent.name in ("studies", "runs")]


@pytest.mark.parametrize("flag", ["--repeats=0", "--cpus-per-process=-1", "--in-flight=0", "--memory-per-process=x"])
def test_number_out_of_range_is_refused(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([flag], os.environ)
    assert caught.value.code == 2
    name, value = flag.split("=")
    assert f"argument {name}: '{value}' is not a number from 1 to " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--parallel=fsdp", "--parallel after -- is set by the study"),
        ("--bogus", "Unrecognized options: --bogus"),
        ("--dataset=/nowhere", "dataset='/nowhere' cannot be found"),
        ("--model=/nowhere", "model='/nowhere' cannot be found"),
    ],
)
def test_wrong_training_option_is_refused_in_one_line(
    flag: str, message: str, home: Path, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*STUDY, *flags, flag], os.environ) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "they share them" not in line]
    assert message in line
    assert not list((home / "studies").glob("*"))


def scaling(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "elasticqa.cli.main", "scaling", *arguments]


def run(home: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return run_command(*scaling(*arguments), env=training.environment(home))


def has_a_step(home: Path) -> bool:
    return any(
        training.losses(directory)
        for directory in training.runs(home)
        if list((directory / "journal").glob("*-node-00000.jsonl"))
    )


@pytest.mark.slow
def test_local_study_is_stopped_continued_and_prints_its_table(home: Path, flags: list[str]) -> None:
    # Long enough to be stopped before its end.
    flags = [*flags, "--epochs=30"]
    stopped = subprocess.Popen(
        scaling(*STUDY, *flags), cwd=REPOSITORY, env=training.environment(home), stdout=subprocess.PIPE, text=True
    )
    try:
        until(lambda: has_a_step(home) or stopped.poll() is not None, "a step of the first run")
        stopped.send_signal(signal.SIGTERM)
        printed, _ = stopped.communicate(timeout=TIMEOUT_S)
    finally:
        stopped.kill()
    assert stopped.returncode == 128 + signal.SIGTERM, printed
    (path,) = (home / "studies").glob("*.jsonl")
    assert f"or with --continue {path.stem}" in printed

    done = run(home, "--continue", path.stem)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| demo")]
    assert [(row[1], row[2]) for row in rows] == [("1 x 1", "1"), ("1 x 2", "1")]
    # The stopped run leaves the study and is measured again.
    ends = [training.journal(directory)["end"][0]["status"] for directory in training.runs(home)]
    assert ends == ["preempted", "finished", "finished"]
    walls = [training.journal(directory)["end"][0]["wall_clock_s"] for directory in training.runs(home)[1:]]
    assert sorted(float(row[3]) for row in rows) == pytest.approx(sorted(walls), abs=0.06)

    again = run(home, *STUDY, *flags)
    assert again.returncode == 0
    assert f"study {path.stem} is complete" in again.stdout
    assert len(training.runs(home)) == 3
    with client_on(home) as client:
        page = client.get(f"/speedup?study={path.stem}").text
    assert re.findall(r'<td class="cell-name">(.*?)(?:<|,)', page) == ["single process", "DDP"]


@pytest.mark.slow
def test_failed_run_is_printed_with_its_reason(home: Path, flags: list[str], tiny_model: Path, tmp_path: Path) -> None:
    # Only the run itself notices unreadable weights.
    broken = tmp_path / "broken"
    broken.mkdir()
    for path in tiny_model.iterdir():
        (broken / path.name).symlink_to(path)
    (broken / "model.safetensors").unlink()
    (broken / "model.safetensors").write_bytes(b"no weights")
    study = (*STUDY[2:], "--strategies=ddp", "--nproc-per-node=1")
    flags[1] = f"--model={broken}"
    done = run(home, *study, *flags)
    assert done.returncode == 1, done.stdout + done.stderr
    assert len(re.findall(r"repeat 1: failed: .+", done.stdout)) == 2
    (path,) = (home / "studies").glob("*.jsonl")
    assert f"run them again with --continue {path.stem} --retry" in done.stdout
    assert "no run of study" in done.stdout
