"""A model directory with random weights, as a run takes it."""

import shutil
from pathlib import Path

from benchmarks.training.setting import MODELS, build_model

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json")


def model_directory(model: str, tokenizer: Path, cache: Path) -> Path:
    """Return a directory with the model and the tokenizer: made once for an architecture, or that which is named."""
    if model not in MODELS:
        return Path(model)
    folder = cache / "models" / model
    if not folder.is_dir():
        partial = folder.with_suffix(".partial")
        build_model(model, 0).save_pretrained(partial)
        for name in TOKENIZER_FILES:
            if (tokenizer / name).is_file():
                shutil.copy(tokenizer / name, partial)
        partial.rename(folder)
    return folder
