import pytest

from db.importers.metric_names import JournalField, journal_field_of


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("loss", JournalField(None, "loss")),
        ("Train/Loss", JournalField(None, "loss")),
        ("training_loss", JournalField(None, "loss")),
        ("train_loss_step", JournalField(None, "loss")),
        ("train/grad_norm", JournalField(None, "grad_norm")),
        ("lr", JournalField(None, "learning_rate")),
        ("lr-AdamW", JournalField(None, "learning_rate")),
        ("lr-AdamW/pg1", JournalField(None, "learning_rate")),
        ("train/step_time", JournalField(None, "step_time_s")),
        ("train/epoch", JournalField(None, "passes")),
        ("epoch", JournalField(None, "epoch")),
        ("val_loss", JournalField("eval", "loss")),
        ("valid/exact_match", JournalField("eval", "em")),
        ("eval_f1", JournalField("eval", "f1")),
        ("eval_squad_dev_f1", JournalField("squad_dev", "f1")),
        ("predict_f1", JournalField("test", "f1")),
        ("eval_samples", JournalField("eval", "num_features")),
    ],
)
def test_known_names_map_to_journal_fields(name: str, meaning: JournalField) -> None:
    assert journal_field_of(name) == meaning


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
def test_unknown_names_map_to_no_field(name: str) -> None:
    assert journal_field_of(name) is None
