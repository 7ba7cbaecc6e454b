"""Which run a start resumes."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elasticqa.config.environment import RUN_ID_VARIABLE
from elasticqa.config.train_config import TrainConfig
from elasticqa.errors import ConfigError
from elasticqa.run.home import hold
from elasticqa.run.journal_reader import first_attempt_line, is_finished, newest_end_line
from elasticqa.training.resume import choose_run
from tests.support.begun_runs import CONFIG, SETUP, chosen, make_run
from tests.support.checkpoints import commit
from tests.support.processes import piped

END = {"kind": "end", "status": "finished", "reason": "trained to the last step"}


def test_first_run_is_new_and_nothing_is_created(tmp_path: Path) -> None:
    run_id, is_new = chosen(tmp_path / "runs")
    assert is_new
    assert len(run_id) == 26
    assert not (tmp_path / "runs").exists()


def test_newest_unfinished_run_of_the_config_is_resumed(tmp_path: Path) -> None:
    make_run(tmp_path, "A")
    make_run(tmp_path, "B")
    make_run(tmp_path, "C", END)
    assert chosen(tmp_path) == ("B", False)


def test_run_is_resumed_with_harmless_differences(tmp_path: Path) -> None:
    make_run(tmp_path, "A")
    assert chosen(tmp_path, name="another", checkpoint_every_steps=7) == ("A", False)


@pytest.mark.parametrize(
    ("lines", "changes"),
    [
        ([END], {}),
        ([], {"config": TrainConfig(seed=4).to_dict()}),
        ([], {"config": None}),
        ([], {"config": "x"}),
        ([], {"provenance": "imported"}),
        ([], {"provenance": None}),
    ],
)
def test_run_that_is_over_or_another_is_left_alone(
    lines: list[dict[str, Any]], changes: dict[str, Any], tmp_path: Path
) -> None:
    make_run(tmp_path, "A", *lines, **changes)
    run_id, is_new = chosen(tmp_path)
    assert is_new
    assert run_id != "A"


@pytest.mark.parametrize("status", ["failed", "preempted"])
def test_run_that_did_not_finish_is_resumed(status: str, tmp_path: Path) -> None:
    make_run(tmp_path, "A", {**END, "status": status})
    assert chosen(tmp_path) == ("A", False)


def test_newest_attempt_says_whether_a_run_is_finished(tmp_path: Path) -> None:
    make_run(tmp_path, "A", {**END, "status": "preempted"})
    make_run(tmp_path, "A", END, attempt=2)
    assert is_finished(tmp_path / "A")
    make_run(tmp_path, "A", attempt=3)
    assert not is_finished(tmp_path / "A")
    assert newest_end_line(tmp_path / "A") is None


def test_run_held_by_a_live_process_is_left_alone(tmp_path: Path) -> None:
    directory = make_run(tmp_path, "A")
    program = "import sys; from pathlib import Path; from elasticqa.run.home import hold\n"
    program += "with hold(Path(sys.argv[1])) as mine: print(mine, flush=True); sys.stdin.read()"
    with piped(sys.executable, "-c", program, directory, stdin=subprocess.PIPE) as (holder, output):
        assert output.readline() == "True\n"
        with hold(directory) as is_mine:
            assert not is_mine
        assert chosen(tmp_path)[1]
        holder.kill()
    assert chosen(tmp_path) == ("A", False)


def test_run_of_another_user_is_left_alone(tmp_path: Path) -> None:
    directory = make_run(tmp_path, "A")
    (directory / "active.lock").mkdir()  # as little to be opened for writing as a file of another user
    assert chosen(tmp_path)[1]


def hostile_entries(runs: Path) -> None:
    (runs / "Z-file").write_text("x", encoding="utf-8")
    (runs / "Y-empty").mkdir()
    (runs / "X-journal-is-a-file").mkdir()
    (runs / "X-journal-is-a-file" / "journal").write_text("x", encoding="utf-8")
    (runs / "U-loop").symlink_to(runs / "U-loop")
    for name, content in {
        "W-no-json": b"{",
        "V-binary": b"\xff\xfe\x00",
        "T-list": b"[1]\n",
        "S-empty": b"",
        "R-deep": b"[" * 100_000,
        "Q-number": b"1" * 10_000,
    }.items():
        make_run(runs, name)
        (runs / name / "journal" / "attempt-0001-node-00000.jsonl").write_bytes(content)
    make_run(runs, "P-directory")
    (runs / "P-directory" / "journal" / "attempt-0001-node-00000.jsonl").unlink()
    (runs / "P-directory" / "journal" / "attempt-0001-node-00000.jsonl").mkdir()


def test_entries_that_are_no_runs_are_passed_over(tmp_path: Path) -> None:
    make_run(tmp_path, "A")
    hostile_entries(tmp_path)
    assert chosen(tmp_path) == ("A", False)
    for entry in tmp_path.iterdir():
        if entry.name != "A":
            assert first_attempt_line(entry) is None
            assert newest_end_line(entry) is None


def test_torn_end_is_no_end(tmp_path: Path) -> None:
    directory = make_run(tmp_path, "A", END)
    journal = directory / "journal" / "attempt-0001-node-00000.jsonl"
    journal.write_bytes(journal.read_bytes()[:-3])
    assert not is_finished(directory)


def test_end_is_found_behind_many_lines(tmp_path: Path) -> None:
    steps = [{"kind": "step", "step": step, "filler": "x" * 100} for step in range(5000)]
    directory = make_run(tmp_path, "A", *steps, END, {"kind": "system"})
    assert newest_end_line(directory) == END


def test_resume_none_starts_a_new_run(tmp_path: Path) -> None:
    make_run(tmp_path, "A")
    assert chosen(tmp_path, resume="none")[1]


@pytest.mark.parametrize("resume", ["auto", "none"])
def test_proposed_id_names_the_new_run_and_is_resumed_after_a_restart(resume: str, tmp_path: Path) -> None:
    assert chosen(tmp_path, resume, "my-run") == ("my-run", True)
    make_run(tmp_path, "my-run", END)
    assert chosen(tmp_path, resume, "my-run") == ("my-run", False)


def test_run_of_the_proposed_id_is_preferred_to_newer_ones(tmp_path: Path) -> None:
    make_run(tmp_path, "A")
    make_run(tmp_path, "B")
    assert chosen(tmp_path, run_id="A") == ("A", False)


def test_run_of_the_proposed_id_with_another_config_is_refused(tmp_path: Path) -> None:
    make_run(tmp_path, "A")
    with pytest.raises(
        ConfigError, match=r"run A cannot be resumed with another config: seed was 3, is 4; .*--resume none"
    ):
        chosen(tmp_path, run_id="A", seed=4)


@pytest.mark.parametrize("run_id", ["../A", "..", ".", "/A", "a/b", "a\0b", "-a", "x" * 65, " ", "a\n"])
def test_proposed_id_that_could_lead_elsewhere_is_refused(run_id: str, tmp_path: Path) -> None:
    make_run(tmp_path, "A")
    with pytest.raises(ConfigError, match=RUN_ID_VARIABLE) as caught:
        chosen(tmp_path / "A", run_id=run_id)
    assert "\n" not in str(caught.value)


def test_empty_variable_is_unset(tmp_path: Path) -> None:
    assert len(chosen(tmp_path, run_id="")[0]) == 26


def test_named_run_is_resumed_by_id_and_by_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = make_run(tmp_path, "A")
    make_run(tmp_path, "B")
    assert chosen(tmp_path, resume="A") == ("A", False)
    assert chosen(tmp_path / "elsewhere", resume=str(directory)) == ("A", False)
    monkeypatch.chdir(directory)
    assert chosen(tmp_path / "elsewhere", resume=".") == ("A", False)


@pytest.mark.parametrize("resume", ["nowhere", "", "file"])
def test_named_run_that_is_none_is_refused(resume: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ConfigError, match=f"resume='{resume}' is not a run"):
        chosen(tmp_path, resume=resume)


def test_named_run_that_is_finished_is_refused(tmp_path: Path) -> None:
    make_run(tmp_path, "A", END)
    with pytest.raises(ConfigError, match=r"run A is finished.*--resume none"):
        chosen(tmp_path, resume="A")


def test_named_run_with_another_config_is_refused_with_every_difference(tmp_path: Path) -> None:
    make_run(tmp_path, "A")
    with pytest.raises(ConfigError, match=r"seed was 3, is 4.*\(only .*log_every_s.* may change\)") as caught:
        chosen(tmp_path, resume="A", seed=4, learning_rate=1.0)
    assert "learning_rate was 3e-05, is 1.0" in str(caught.value)


def test_hold_ends_with_the_block(tmp_path: Path) -> None:
    for _ in range(2):
        with hold(tmp_path) as is_mine:
            assert is_mine
            with hold(tmp_path) as is_mine_too:
                assert not is_mine_too
    assert [path.name for path in tmp_path.iterdir()] == ["active.lock"]


def with_checkpoint(directory: Path, *steps: int) -> Path:
    """Give a run small whole checkpoints and return the first."""
    first, *_ = [commit(directory / "checkpoints", step) for step in steps]
    return first


def test_run_is_resumed_from_a_named_checkpoint(tmp_path: Path) -> None:
    checkpoint = with_checkpoint(make_run(tmp_path, "A", END), 3, 5)
    for resume in (str(checkpoint), "A/checkpoints/step-00000003"):
        choice = choose_run(replace(CONFIG, resume=resume), tmp_path, {})
        assert (choice.directory.name, choice.is_new, choice.checkpoint) == ("A", False, checkpoint)


def test_named_checkpoint_that_is_damaged_or_of_another_config_is_refused(tmp_path: Path) -> None:
    checkpoint = with_checkpoint(make_run(tmp_path, "A"), 3)
    with pytest.raises(ConfigError, match="seed was 3, is 4"):
        choose_run(replace(CONFIG, resume=str(checkpoint), seed=4), tmp_path, {})
    (checkpoint / "__0_0.distcp").write_bytes(b"y" * 100)
    with pytest.raises(ConfigError, match=r"__0_0.distcp does not match .*elasticqa checkpoints A"):
        choose_run(replace(CONFIG, resume=str(checkpoint)), tmp_path, {})
    with pytest.raises(ConfigError, match="is not a run"):
        choose_run(replace(CONFIG, resume="A/checkpoints/step-00000009"), tmp_path, {})


def test_restart_after_a_named_checkpoint_resumes_from_the_newest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = with_checkpoint(make_run(tmp_path, "A", SETUP), 3)
    asked = replace(CONFIG, resume=str(checkpoint))
    make_run(tmp_path, "A", attempt=2, config=asked.to_dict())  # died before it had gone back
    assert choose_run(asked, tmp_path, {}).checkpoint == checkpoint
    make_run(tmp_path, "A", SETUP, attempt=3, config=asked.to_dict())
    make_run(tmp_path, "A", attempt=4, config=asked.to_dict())
    choice = choose_run(asked, tmp_path, {})
    assert (choice.directory.name, choice.checkpoint) == ("A", None)
    assert "resumes from its newest checkpoint" in caplog.text
    make_run(tmp_path, "A", SETUP, attempt=5)
    assert choose_run(asked, tmp_path, {}).checkpoint == checkpoint
