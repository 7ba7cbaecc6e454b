"""Options, SQuAD features, models and result files of all benchmarks that train or evaluate."""

import argparse
import json
import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForQuestionAnswering, AutoTokenizer, PretrainedConfig

from benchmarks.support.machine import without_folders
from elasticqa.data.squad.cache import FeatureRequest, load_or_build
from elasticqa.data.squad.features import Features, Windowing
from elasticqa.distributed.facts import host_facts

MAX_LENGTH = 384
DOC_STRIDE = 128
MODELS: dict[str, dict[str, int]] = {
    "tiny": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64},
    "bert-base": {},
    "bert-large": {
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
    },
}
"""Architectures that get random weights; any other name is a directory with weights."""
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json")


@dataclass(frozen=True)
class Data:
    """Files that the features come from."""

    squad: Path
    tokenizer: Path
    cache: Path

    @classmethod
    def of(cls, given: argparse.Namespace) -> "Data":
        """Return the files that the options of `parser` name."""
        return cls(given.squad, given.tokenizer, given.cache)

    def features(self) -> Features:
        """Return the features of the training file; only the first call builds them."""
        return squad_features(self.squad, self.tokenizer, self.cache)


def parser(description: str, *, is_whole_dataset: bool = False) -> argparse.ArgumentParser:
    """Return a parser with the options of every script: `--squad`, or `--dataset` for a whole dataset."""
    result = argparse.ArgumentParser(description=description)
    if is_whole_dataset:
        result.add_argument("--dataset", type=Path, required=True, help="directory with train and dev files")
    else:
        result.add_argument("--squad", type=Path, required=True, help="train-v1.1.json or .json.gz")
    result.add_argument("--tokenizer", type=Path, required=True, help="directory of an uncased BERT's tokenizer")
    result.add_argument("--cache", type=Path, required=True, help="directory for features, models and compiled code")
    result.add_argument("--results", type=Path, required=True, help="file to write, JSON")
    return result


def squad_features(squad: Path, tokenizer: Path, cache: Path) -> Features:
    """Return the features of a training file at length 384 and stride 128."""
    request = FeatureRequest(squad, for_training=True, windowing=Windowing(MAX_LENGTH, DOC_STRIDE))
    return load_or_build(request, AutoTokenizer.from_pretrained(tokenizer), cache / "features").features


def bert_config(model: str, **more: Any) -> PretrainedConfig:
    """Return the configuration of a BERT of the given size, with dropout 0.1, or that of a directory."""
    result: PretrainedConfig
    if model in MODELS:
        result = AutoConfig.for_model("bert", **MODELS[model], **more)
    else:
        result = AutoConfig.from_pretrained(model, **more)
    return result


def build_model(model: str, seed: int, **more: Any) -> Any:
    """Return the model in fp32: random weights for an architecture, the weights of a directory.

    Args:
        model: a name of `MODELS`, or a directory.
        seed: of random weights and the new head.
        more: changes of its configuration.
    """
    torch.manual_seed(seed)
    config = bert_config(model, **more)
    if model in MODELS:
        return AutoModelForQuestionAnswering.from_config(config)
    return AutoModelForQuestionAnswering.from_pretrained(model, config=config, dtype=torch.float32)


def model_directory(model: str, tokenizer: Path, cache: Path) -> Path:
    """Return a directory with model and tokenizer: the named one, or one made once with random weights."""
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


def model_name(model: str) -> str:
    """Return the name of a model in the results."""
    return model if model in MODELS else Path(model).absolute().name


def card() -> str:
    """Return the name of the GPU, or of the processor with the number of threads in use."""
    name = host_facts(0, 1)["device_name"]
    return str(name) if torch.cuda.is_available() else f"{name}, {torch.get_num_threads()} threads"


def facts(of_card: str | None = None) -> dict[str, Any]:
    """Return device, torch version, date, load and command of a measurement.

    Args:
        of_card: name of the device, if querying it here would use its memory.
    """
    module = getattr(sys.modules["__main__"], "__spec__", None)
    name = module.name if module is not None else Path(sys.argv[0]).stem
    ranks = os.environ.get("LOCAL_WORLD_SIZE") if "TORCHELASTIC_RUN_ID" in os.environ else None
    starter = ["python"] if ranks is None else ["torchrun", "--standalone", f"--nproc-per-node={ranks}"]
    return {
        "card": of_card or card(),
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
        "load": round(os.getloadavg()[0], 1),
        "command": shlex.join([*starter, "-m", name, *without_folders(sys.argv[1:])]),
    }


def synchronize() -> None:
    """Wait for the device."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def write(results: Path, measurements: list[dict[str, Any]]) -> None:
    """Write the measurements atomically."""
    results.parent.mkdir(parents=True, exist_ok=True)
    partial = results.with_suffix(".partial")
    partial.write_text(json.dumps(measurements, indent=1) + "\n", encoding="utf-8")
    partial.rename(results)
