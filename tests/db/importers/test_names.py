import pytest

from db.importers.names import Meaning, meaning_of


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("loss", Meaning(None, "loss")),
        ("Train/Loss", Meaning(None, "loss")),
        ("training_loss", Meaning(None, "loss")),
        ("train_loss_step", Meaning(None, "loss")),
        ("train/grad_norm", Meaning(None, "grad_norm")),
        ("lr", Meaning(None, "learning_rate")),
        ("lr-AdamW", Meaning(None, "learning_rate")),
        ("lr-AdamW/pg1", Meaning(None, "learning_rate")),
        ("train/step_time", Meaning(None, "step_time_s")),
        ("train/epoch", Meaning(None, "passes")),
        ("epoch", Meaning(None, "epoch")),
        ("val_loss", Meaning("eval", "loss")),
        ("valid/exact_match", Meaning("eval", "em")),
        ("eval_f1", Meaning("eval", "f1")),
        ("eval_squad_dev_f1", Meaning("squad_dev", "f1")),
        ("predict_f1", Meaning("test", "f1")),
        ("eval_samples", Meaning("eval", "num_features")),
    ],
)
def test_known_names_have_their_meaning(name: str, meaning: Meaning) -> None:
    assert meaning_of(name) == meaning


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/",
        "step",
        "accuracy",
        "train_loss_epoch",
        "val_loss_epoch",
        "lr-AdamW/pg2",
        "lr-AdamW/pg10",
        "eval_samples_per_second",
        "train_samples_per_second",
        "eval_steps_per_second",
        "train/train_loss",
        "loss_scale",
        "f1",
    ],
)
def test_other_names_have_none(name: str) -> None:
    assert meaning_of(name) is None
