import json
from pathlib import Path
from typing import Any

import pytest

from db.importers.fields import ImportFormatError
from tests.support.imported_results import (
    ENDED_AT,
    HISTORY,
    TRAINING,
    hf_folder,
    known,
    lines_of,
    read_run,
    state,
    write_json,
)


def test_folder_gives_steps_evaluations_and_end_as_the_files_say(tmp_path: Path) -> None:
    run = read_run(hf_folder(tmp_path / "out"))
    assert [(line["step"], line["epoch"], line["loss"]) for line in lines_of(run, "step")] == [
        (3, 0, 2.1),
        (6, 0, 2.0),
        (9, 1, 1.5),
        (12, 1, 1.0),
    ]
    assert known(lines_of(run, "step")[0]) == {
        "step": 3,
        "epoch": 0,
        "loss": 2.1,
        "grad_norm": 2.5,
        "learning_rate": 4e-05,
        "is_warmup": False,
    }
    first, last = lines_of(run, "evaluation")
    assert known(first) == {"step": 7, "split": "eval", "em": 50.0, "f1": 60.5, "loss": 1.75, "eval_time_s": 0.5}
    # At the last step, because the results have no step.
    assert known(last) == {"step": 14, "split": "eval", "em": 55.0, "f1": 65.0, "eval_time_s": 0.25, "num_features": 50}
    assert run.end["status"] == "finished"
    assert (run.end["step"], run.end["wall_clock_s"], run.end["train_time_s"]) == (14, 20.0, 20.0)
    assert run.end["samples_per_s"] == 5.0
    assert run.end["final_loss"] == pytest.approx((1.5 + 1.0) / 2)
    assert (run.started_at, run.ended_at) == (ENDED_AT - 20.0, ENDED_AT)
    assert run.config == {"epochs": 2.0, "micro_batch_size": 8}
    (setup,) = lines_of(run, "setup")
    assert setup["num_steps"] == 14
    assert setup["dataset"] == {"num_train_features": 50}
    assert setup["model"] == {"name": "bert-base-uncased", "model_type": "bert"}
    (figures,) = lines_of(run, "event")
    assert figures["data"] == {"mean_train_loss": 1.62, "steps_per_s": 0.7, "total_flos": 8457600.0}


def test_values_that_the_trainer_does_not_log_stay_empty(tmp_path: Path) -> None:
    run = read_run(write_json(tmp_path / "trainer_state.json", state()))
    for step in lines_of(run, "step"):
        assert step["step_time_s"] is None
        assert step["samples_seen"] is None
    assert run.world_size is None
    assert run.host is None
    assert "global_batch_size" not in run.config


def test_values_not_finite_become_null_and_a_loss_becomes_an_event(tmp_path: Path) -> None:
    entries = [
        {"step": 1, "loss": float("nan"), "grad_norm": float("inf"), "learning_rate": 1e-5, "epoch": 0.5},
        {"step": 2, "loss": None, "epoch": 1.0},
        {"step": 3, "loss": 1.0, "grad_norm": float("-inf"), "epoch": 1.5},
    ]
    run = read_run(write_json(tmp_path / "trainer_state.json", state(log_history=entries)))
    assert [line["loss"] for line in lines_of(run, "step")] == [None, None, 1.0]
    assert [line["grad_norm"] for line in lines_of(run, "step")] == [None, None, None]
    (event,) = lines_of(run, "event")
    assert event["name"] == "non_finite_loss"
    assert event["data"] == {"num_steps": 2, "steps": [1, 2]}


def test_state_before_the_end_is_not_finished(tmp_path: Path) -> None:
    run = read_run(write_json(tmp_path / "trainer_state.json", state(global_step=7, log_history=HISTORY[:3])))
    assert run.end["status"] == "preempted"
    assert "step 7 of 14" in run.end["reason"]


def test_newest_checkpoint_is_used_for_a_folder_without_a_state(tmp_path: Path) -> None:
    for step in (9, 14, 7):
        history = [{"step": step, "loss": float(step), "epoch": 1.0}]
        write_json(tmp_path / f"checkpoint-{step}" / "trainer_state.json", state(log_history=history))
    assert [line["loss"] for line in lines_of(read_run(tmp_path), "step")] == [14.0]


def test_results_files_without_a_state_are_a_run(tmp_path: Path) -> None:
    run = read_run(write_json(tmp_path / "all_results.json", {**TRAINING, "eval_f1": 60.0, "eval_exact": 40.0}))
    assert (run.end["train_time_s"], run.end["samples_per_s"]) == (20.0, 5.0)
    assert known(lines_of(run, "evaluation")[0]) == {"step": 0, "split": "eval", "em": 40.0, "f1": 60.0}


def test_file_and_folder_are_one_run(tmp_path: Path) -> None:
    folder = hf_folder(tmp_path / "out")
    ids = {read_run(path).run_id for path in (folder, folder / "trainer_state.json", folder / "eval_results.json")}
    assert len(ids) == 1


def test_evaluations_of_several_sets_are_splits(tmp_path: Path) -> None:
    entry = {"step": 5, "eval_squad_f1": 70.0, "eval_xquad_f1": 60.0, "eval_xquad_exact_match": 50.0}
    run = read_run(write_json(tmp_path / "trainer_state.json", state(log_history=[entry])))
    assert [(line["split"], line["em"], line["f1"]) for line in lines_of(run, "evaluation")] == [
        ("squad", None, 70.0),
        ("xquad", 50.0, 60.0),
    ]


def test_model_file_of_training_arguments_is_never_opened(tmp_path: Path) -> None:
    folder = hf_folder(tmp_path / "out")
    before = read_run(folder).run_id
    # A pickle that writes a file if it is loaded.
    target = tmp_path / "executed"
    (folder / "training_args.bin").write_bytes(f"cpathlib\nPath\n(V{target}\ntRV\n.".encode())
    assert read_run(folder).run_id == before
    assert not target.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"log_history": [{"step": 1, "loss": "low"}]}, "log_history entry 0: loss='low' is not a number"),
        ({"log_history": [{"step": 1}, 7]}, "log_history entry 1: 7 is not an object"),
        ({"log_history": [{"loss": 1.0}]}, "log_history entry 0: has no step, which is a count"),
        ({"log_history": [{"step": -1, "loss": 1}]}, "step=-1 is not a count below 2^31"),
        ({"log_history": [{"step": True, "loss": 1}]}, "step=True is not a count below 2^31"),
        ({"log_history": [{"step": 2**31, "loss": 1}]}, "is not a count below 2^31"),
        ({"log_history": [{"step": 1, "loss": 10**400}]}, "loss=an integer of more than 50 digits is too large"),
        ({"log_history": [{"step": 1, "eval_f1": -1}]}, "eval_f1=-1.0 is negative"),
        ({"log_history": {"step": 1}}, "is not an array"),
        ({"global_step": "many"}, "global_step='many' is not a count below 2^31"),
        ({"num_train_epochs": [2]}, "num_train_epochs=[2] is not a number"),
    ],
)
def test_wrong_types_are_errors_with_their_position(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = write_json(tmp_path / "trainer_state.json", state(**changes))
    with pytest.raises(ImportFormatError) as caught:
        read_run(path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_truncation_of_a_state_is_refused(tmp_path: Path) -> None:
    whole = json.dumps(state())
    path = tmp_path / "trainer_state.json"
    for length in range(1, len(whole) - 1, 7):
        path.write_text(whole[:length])
        with pytest.raises(ImportFormatError, match=r"trainer_state\.json: character"):
            read_run(path)


def test_other_json_is_refused(tmp_path: Path) -> None:
    path = write_json(tmp_path / "package.json", {"name": "x", "version": 1})
    with pytest.raises(ImportFormatError, match="neither a trainer state nor a trace"):
        read_run(path)
