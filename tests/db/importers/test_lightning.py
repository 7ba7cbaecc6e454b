from pathlib import Path

import pytest

from db.importers.fields import ImportFormatError
from db.importers.lightning import MAX_BYTES
from db.importers.results import find_results, read_results
from tests.support.imported_results import ENDED_AT, METRICS, known, lightning_folder, lines_of, read_run


def test_rows_are_merged_by_step_counted_from_one(tmp_path: Path) -> None:
    run = read_run(lightning_folder(tmp_path / "version_0"))
    assert [known(line) for line in lines_of(run, "step")] == [
        {"step": 3, "epoch": 0, "loss": 0.5, "learning_rate": 0.01, "is_warmup": False},
        {"step": 12, "epoch": 1, "loss": 0.25, "learning_rate": 0.005, "is_warmup": False},
        {"step": 15, "epoch": 1, "loss": 0.125, "is_warmup": False},
    ]
    assert [known(line) for line in lines_of(run, "evaluation")] == [
        {"step": 10, "split": "eval", "f1": 50.0, "loss": 0.25},
        {"step": 20, "split": "eval", "f1": 51.5, "loss": 0.2},
    ]
    assert run.end["final_loss"] == pytest.approx((0.25 + 0.125) / 2)
    assert run.end["step"] == 20
    assert run.config == {"learning_rate": 0.01}
    assert run.started_at == run.ended_at == ENDED_AT


def test_times_stay_empty(tmp_path: Path) -> None:
    run = read_run(lightning_folder(tmp_path))
    assert "wall_clock_s" not in run.end
    assert "train_time_s" not in run.end
    assert all(line["step_time_s"] is None for line in lines_of(run, "step"))


def test_file_without_hparams_is_enough(tmp_path: Path) -> None:
    assert read_run(lightning_folder(tmp_path, hparams=None)).config == {}


def test_folder_of_versions_gives_one_run_each(tmp_path: Path) -> None:
    for number in range(3):
        lightning_folder(tmp_path / f"version_{number}", METRICS + f"1,,2{number},,0.1,,\n")
    assert len({read_results(found).run_id for found in find_results(tmp_path)}) == 3


def test_nan_loss_becomes_null_and_an_event(tmp_path: Path) -> None:
    run = read_run(lightning_folder(tmp_path, "step,train_loss,val_loss\n0,nan,\n1,inf,\n2,0.5,nan\n"))
    assert [line["loss"] for line in lines_of(run, "step")] == [None, None, 0.5]
    assert lines_of(run, "event")[0]["data"] == {"num_steps": 2, "steps": [1, 2]}


def test_settings_are_flat_and_plain(tmp_path: Path) -> None:
    hparams = "optimizer:\n  name: adamw\n  betas: [0.9, 0.999]\nlr: .nan\nuse: true\nnothing: null\n"
    assert read_run(lightning_folder(tmp_path, hparams=hparams)).config == {
        "optimizer.name": "adamw",
        "optimizer.betas": "[0.9, 0.999]",
        "lr": None,
        "use": True,
        "nothing": None,
    }


def test_settings_with_python_objects_are_skipped_unexecuted(tmp_path: Path) -> None:
    target = tmp_path / "executed"
    hparams = f"a: !!python/object/apply:os.mkdir ['{target}']\n"
    run = read_run(lightning_folder(tmp_path / "version_0", hparams=hparams))
    assert run.config == {}
    assert [line["name"] for line in lines_of(run, "event")] == ["settings_skipped"]
    assert not target.exists()


@pytest.mark.parametrize(
    ("hparams", "message"),
    [
        ("a: [1", "is not readable YAML"),
        ("- 1\n- 2\n", "is not a mapping"),
        ("a: " + "[" * 5_000, "is not readable YAML"),
        ("a: " + "x" * 2**18, "over 256 KiB"),
        ("\n".join(f"k{number}: 1" for number in range(600)), "more than 500 settings"),
        ("a: {b: {c: {d: {e: {f: {g: {h: 1}}}}}}}\n", "nested deeper than 6 levels"),
    ],
)
def test_damaged_settings_are_refused(tmp_path: Path, hparams: str, message: str) -> None:
    path = lightning_folder(tmp_path, hparams=hparams)
    with pytest.raises(ImportFormatError, match=message) as caught:
        read_run(path)
    assert "hparams.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ("step,train_loss\n0,0.5\n1", "line 3: is cut off"),
        ("step,train_loss\n0,0.5\n1,0.", "line 3: is cut off"),
        ("step,train_loss\n0,0.5\n1\n", "line 3: 1 values under 2 columns"),
        ("step,train_loss\n0,0.5,7\n", "line 2: 3 values under 2 columns"),
        ("step,train_loss\n0,low\n", "line 2: train_loss='low' is not a number"),
        ("step,train_loss\n-1,0.5\n", "line 2: step='-1' is not a count"),
        ("step,train_loss\n1e99,0.5\n", "is not a count"),
        ("name,age\nx,1\n", "line 1: the first line needs a column step"),
        ("step,accuracy\n1,1\n", "line 1: the first line needs a column step"),
        ('step,train_loss\n0,"0.5\n', "is not CSV"),
        ("step,train_loss\n0," + "1" * 70_000 + "\n", "is longer than 65,536 characters"),
        ("\x00" * 100, "is cut off"),
    ],
)
def test_damaged_metrics_are_refused_with_their_line(tmp_path: Path, metrics: str, message: str) -> None:
    path = lightning_folder(tmp_path, metrics)
    with pytest.raises(ImportFormatError, match=message) as caught:
        read_run(path)
    assert str(caught.value).startswith(str(path))


def test_bytes_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    path = lightning_folder(tmp_path)
    path.write_bytes(b"step,train_loss\n0,\xff\xfe\n")
    with pytest.raises(ImportFormatError, match="not UTF-8"):
        read_run(path)


def test_file_over_the_limit_is_refused_unread(tmp_path: Path) -> None:
    path = lightning_folder(tmp_path)
    with path.open("r+b") as stream:
        stream.truncate(MAX_BYTES + 1)
    with pytest.raises(ImportFormatError, match="over 256 MiB"):
        read_run(path)
