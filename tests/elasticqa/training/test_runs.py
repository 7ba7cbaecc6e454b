"""Whole training runs in real processes: the step contract, resuming, and what is refused."""

import contextlib
import json
import shutil
import signal
from pathlib import Path

import psutil
import pytest

from tests.support import training
from tests.support.training import flags

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def reference(tiny_model: Path, tiny_squad: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run directory of 50 steps without dropout in one process."""
    home = tmp_path_factory.mktemp("reference")
    return training.trained(home, *flags(tiny_model, tiny_squad, "--dropout=0", "--epochs=7", "--max-steps=50"))


@pytest.mark.parametrize(("parallel", "nproc"), [("ddp", 1), ("ddp", 2), ("ddp", 3), ("fsdp", 2), ("fsdp", 3)])
def test_losses_and_features_of_every_step_are_those_of_one_process(
    parallel: str, nproc: int, reference: Path, tiny_model: Path, tiny_squad: Path, tmp_path: Path
) -> None:
    arguments = flags(tiny_model, tiny_squad, "--dropout=0", "--epochs=7", "--max-steps=50", f"--parallel={parallel}")
    directory = training.trained(tmp_path, *arguments, nproc=nproc)
    expected, losses = training.losses(reference), training.losses(directory)
    assert list(losses) == list(range(1, 51))
    assert losses == pytest.approx(expected, abs=1e-4)
    assert expected[50] < expected[1] - 0.5
    fed = training.fed(directory)
    assert fed == training.fed(reference)
    assert sorted(feature for step in range(1, 9) for feature in fed[step]) == list(range(53))


def test_run_resumes_under_another_strategy_with_the_same_losses(
    reference: Path, tiny_model: Path, tiny_squad: Path, tmp_path: Path
) -> None:
    arguments = flags(tiny_model, tiny_squad, "--dropout=0", "--epochs=7", "--max-steps=50", "--keep-checkpoints=9")
    arguments.append("--checkpoint-every-steps=10")
    run = training.trained(tmp_path, *arguments, "--parallel=ddp", nproc=2)
    # Each resumes from a checkpoint of the one before.
    lives: list[tuple[int, int | None, list[str]]] = [
        (10, 2, ["--parallel=fsdp"]),
        (20, None, ["--parallel=none", "--micro-batch-size=1"]),
        (30, 3, ["--parallel=fsdp", "--activation-checkpointing", "--attention=padded"]),
        (40, 1, ["--parallel=ddp", "--attention=sdpa"]),
    ]
    expected, fed = training.losses(reference), training.fed(reference)
    for attempt, (step, nproc, changes) in enumerate(lives, start=2):
        resume = f"--resume={run}/checkpoints/step-{step:08d}"
        assert training.trained(tmp_path, *arguments, *changes, resume, nproc=nproc) == run
        steps = range(step + 1, 51)
        assert training.losses(run, attempt) == pytest.approx({each: expected[each] for each in steps}, abs=1e-4)
        assert training.fed(run, attempt) == {each: fed[each] for each in steps}
        events = {line["name"]: line["data"] for line in training.journal(run, attempt)["event"]}
        assert "parallel" in events["config_changed"]["changes"]


@pytest.mark.parametrize("nproc", [1, 2, 3])
def test_killed_run_resumes_bit_for_bit(nproc: int, tiny_model: Path, tiny_squad: Path, tmp_path: Path) -> None:
    # More steps than a run makes before it blocks on its full output pipe.
    arguments = flags(tiny_model, tiny_squad, "--epochs=18", "--checkpoint-every-steps=5")
    whole, home = training.trained(tmp_path / "whole", *arguments, nproc=nproc), tmp_path / "killed"
    with training.started(home, training.command(*arguments, nproc=nproc), step=12) as process:
        pid = training.journal(training.only_run(home))["attempt"][0]["pid"]
        agent = psutil.Process(process.pid)
        for each in (*agent.children(recursive=True), agent):
            each.kill()
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(pid).wait(timeout=60)
    directory = training.trained(home, *arguments, nproc=nproc)
    start = training.journal(directory, 2)["setup"][0]["start_step"]
    assert start % 5 == 0
    assert start >= 5  # the checkpoint of step 10 may have been on its way
    expected = training.losses(whole)
    second = training.losses(directory, 2)
    assert second == {step: expected[step] for step in range(start + 1, 145)}
    assert training.fed(directory, 2) == {step: training.fed(whole)[step] for step in range(start + 1, 145)}
    end = training.journal(directory, 2)["end"][0]
    assert (end["status"], end["samples_seen"]) == ("finished", 18 * 53)
    assert end["final_loss"] == training.journal(whole)["end"][0]["final_loss"]


def test_second_start_of_a_finished_run_is_a_second_run(tiny_model: Path, tiny_squad: Path, tmp_path: Path) -> None:
    arguments = flags(tiny_model, tiny_squad, "--max-steps=2")
    for _ in range(2):
        assert training.train(tmp_path, *arguments).returncode == 0
    first, second = training.runs(tmp_path)
    assert training.losses(first) == training.losses(second)


def test_terminated_run_saves_and_resumes(tiny_model: Path, tiny_squad: Path, tmp_path: Path) -> None:
    arguments = flags(tiny_model, tiny_squad, "--epochs=18", "--checkpoint-every-steps=1000")
    with training.started(tmp_path, training.command(*arguments), step=5) as process:
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 143
    directory = training.only_run(tmp_path)
    first = training.journal(directory)
    assert first["end"][0]["status"] == "preempted"
    assert first["checkpoint"][0]["reason"] == "signal"
    training.trained(tmp_path, *arguments)
    stopped_at = first["end"][0]["step"]
    assert stopped_at >= 5
    assert training.journal(directory, 2)["setup"][0]["start_step"] == stopped_at
    assert min(training.losses(directory, 2)) == stopped_at + 1
    assert max(training.losses(directory, 2)) == 144


def test_non_finite_loss_stops_with_step_and_features(tiny_model: Path, tiny_squad: Path, tmp_path: Path) -> None:
    arguments = flags(
        tiny_model, tiny_squad, "--epochs=3", "--learning-rate=1e30", "--warmup-ratio=0", "--checkpoint-every-steps=1"
    )
    done = training.train(tmp_path, *arguments, nproc=2, max_restarts=2)
    assert done.returncode != 0
    directory = training.only_run(tmp_path)
    lines = training.journal(directory)
    end = lines["end"][0]
    assert (end["status"], end["is_fatal"]) == ("failed", True)
    bad = next(line for line in lines["step"] if line["loss"] is None)
    assert f"at step {bad['step']} is not finite" in done.stderr
    fed = training.fed(directory)[bad["step"]]
    assert all(str(feature) in end["reason"] for feature in fed)
    assert max(line["step"] for line in lines["checkpoint"]) < bad["step"]
    # torchrun may start the workers again; nothing is tried a second time.
    assert [path.name for path in (directory / "journal").glob("*.jsonl")] == ["attempt-0001-node-00000.jsonl"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--max-length=20", "--doc-stride=8"], "max_length"),
        (["--global-batch-size=1"], "global_batch_size=1 cannot feed world_size=2"),
        (["--model=/no/such/model"], "model='/no/such/model'"),
        (["--dataset=/no/such/data"], "dataset='/no/such/data'"),
        (["--epochs=0"], "epochs=0 is too small"),
        (["--recipe=unheard-of"], "recipe='unheard-of'"),
        (["--model=someone/unheard-of"], "model='someone/unheard-of'"),
        (["--precision=fp16"], "precision='fp16' needs a GPU"),
        (["--parallel=none"], "parallel='none' cannot use world_size=2"),
    ],
)
def test_bad_request_is_one_line_and_leaves_no_run(
    more: list[str], message: str, tiny_model: Path, tiny_squad: Path, tmp_path: Path
) -> None:
    done = training.train(tmp_path, *flags(tiny_model, tiny_squad), *more, nproc=2)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert training.runs(tmp_path) == []


def test_bad_data_is_named_and_leaves_no_run(tiny_model: Path, tmp_path: Path) -> None:
    articles = [{"title": "T", "paragraphs": [{"context": "c", "qas": [{"id": "1", "question": "q"}]}]}]
    (tmp_path / "train.json").write_text(json.dumps({"data": articles}), encoding="utf-8")
    done = training.train(tmp_path / "home", *flags(tiny_model, tmp_path / "train.json"))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    for part in ("train.json", "article 1", "paragraph 1", "question 1", "answers"):
        assert part in done.stderr
    assert training.runs(tmp_path / "home") == []


def test_unwritable_home_is_refused(tiny_model: Path, tiny_squad: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    done = training.train(tmp_path / "file" / "home", *flags(tiny_model, tiny_squad))
    assert done.returncode == 2
    assert "ELASTICQA_HOME" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_run_resumes_from_a_named_checkpoint_and_sets_newer_ones_aside(
    tiny_model: Path, tiny_squad: Path, tmp_path: Path
) -> None:
    arguments = flags(tiny_model, tiny_squad, "--max-steps=6", "--checkpoint-every-steps=2")
    arguments.append("--keep-checkpoints=9")
    run = training.trained(tmp_path, *arguments)
    done = training.train(tmp_path, *arguments, f"--resume={run}/checkpoints/step-00000002", "--keep-checkpoints=8")
    assert done.returncode == 0, done.stdout + done.stderr
    assert training.only_run(tmp_path) == run
    second = training.journal(run, 2)
    assert second["setup"][0]["start_step"] == 2
    assert [line["step"] for line in second["step"]] == [3, 4, 5, 6]
    assert training.losses(run, 2) == {step: loss for step, loss in training.losses(run).items() if step > 2}
    events = {line["name"]: line for line in second["event"]}
    assert events["config_changed"]["data"] == {"changes": {"keep_checkpoints": [9, 8]}}
    assert events["checkpoints_set_aside"]["data"] == {"names": ["step-00000006", "step-00000004"]}
    assert "step-00000004" in done.stdout
    assert (run / "checkpoints" / "set-aside" / "step-00000006" / "manifest.json").is_file()


@pytest.mark.parametrize("kind", ["training data", "model"])
def test_other_content_under_the_same_name_is_refused(
    kind: str, tiny_model: Path, tiny_squad: Path, tmp_path: Path
) -> None:
    model, data = shutil.copytree(tiny_model, tmp_path / "model"), shutil.copytree(tiny_squad, tmp_path / "data")
    arguments = flags(model, data, "--max-steps=2", "--keep-checkpoints=9", "--checkpoint-every-steps=1")
    run = training.trained(tmp_path / "home", *arguments)
    file = model / "config.json" if kind == "model" else data / "train.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    if kind == "model":
        content["layer_norm_eps"] = 1e-3
    else:
        content["data"].reverse()
    file.write_text(json.dumps(content), encoding="utf-8")
    for resume in (run, run / "checkpoints" / "step-00000001"):
        done = training.train(tmp_path / "home", *arguments, f"--resume={resume}")
        assert done.returncode == 2
        assert f"content of the {kind} (SHA-256) was" in done.stderr
        assert len(done.stderr.splitlines()) == 1
