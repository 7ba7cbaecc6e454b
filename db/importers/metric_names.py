"""Names of metrics in other programs, as fields of the journal."""

import re
from dataclasses import dataclass

_NAMES = {
    "loss": ("loss",),
    "grad_norm": ("grad_norm", "gradient_norm"),
    "learning_rate": ("learning_rate", "lr"),
    "step_time_s": ("step_time", "step_time_s"),
    "data_time_s": ("data_time", "data_time_s"),
    "epoch": ("epoch",),
    "em": ("em", "exact", "exact_match"),
    "f1": ("f1",),
    "eval_time_s": ("runtime", "eval_time_s"),
    "num_features": ("samples",),
}
_FIELDS = {name: field for field, names in _NAMES.items() for name in names}
OF_STEP = frozenset({"loss", "grad_norm", "learning_rate", "step_time_s", "data_time_s", "epoch"})
"""Fields of a `step` line that imports fill."""
OF_EVALUATION = frozenset({"loss", "em", "f1", "eval_time_s", "num_features"})
"""Fields of an `evaluation` line that imports fill."""
_TRAIN = frozenset({"train", "training"})
_EVAL = dict.fromkeys(("eval", "val", "valid", "validation", "dev"), "eval") | {"test": "test", "predict": "test"}
_WORDS = re.compile(r"[/.\s_-]+")


@dataclass(frozen=True)
class JournalField:
    """A field of the journal's `step` line (split None) or of its `evaluation` line.

    Field `passes` counts completed passes over the data as a float, like `epoch` of the Hugging Face Trainer.
    """

    split: str | None
    field: str


def journal_field_of(name: str) -> JournalField | None:
    """Return the field that a tag, column or key stands for, or None.

    A mean over an epoch gives None: imports use the values of single steps instead.

    >>> journal_field_of("train/loss"), journal_field_of("val_f1")
    (JournalField(split=None, field='loss'), JournalField(split='eval', field='f1'))
    >>> journal_field_of("lr-AdamW/pg1"), journal_field_of("train_loss_epoch")
    (JournalField(split=None, field='learning_rate'), None)
    """
    words = [word for word in _WORDS.split(name.lower()) if word]
    if len(words) > 1 and words[-1] == "step" and words[-2] != "per":
        words = words[:-1]
    if not words or (words[-1] == "epoch" and len(words) > 2):
        return None
    if words[0] == "lr" and len(words) > 1:
        # A program logs one rate per parameter group; take the first group's: suffix pg1, or no suffix.
        return JournalField(None, "learning_rate") if not re.fullmatch(r"pg([2-9]|\d\d+)", words[-1]) else None
    if words[0] in _EVAL:
        return _of_evaluation(_EVAL[words[0]], words[1:])
    if words[0] in _TRAIN:
        words = words[1:]
        if words == ["epoch"]:
            return JournalField(None, "passes")
    field = _FIELDS.get("_".join(words))
    return JournalField(None, field) if field in OF_STEP else None


def _of_evaluation(split: str, words: list[str]) -> JournalField | None:
    """Use the longest ending that names a metric; the words before it name the split."""
    for start in range(len(words)):
        field = _FIELDS.get("_".join(words[start:]))
        if field in OF_EVALUATION:
            return JournalField("_".join(words[:start]) or split, field)
    return None
