"""`elasticqa prepare`: download and preprocess what a training run reads, so that it needs no network."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from huggingface_hub import constants

from elasticqa.config.command_line import parse_config
from elasticqa.config.environment import ENVIRONMENT
from elasticqa.config.train_config import TrainConfig
from elasticqa.data.hub import Hub, model_not_found, resolve_model
from elasticqa.data.squad.dataset import resolve_dataset
from elasticqa.data.task import load_task
from elasticqa.errors import ConfigError, DataError
from elasticqa.models.question_answering import load_model
from elasticqa.run.home import home

USAGE = """usage: elasticqa prepare [OPTION OF train ...]

Download the model and the data of a training run and compute its features, on a machine that reaches the hub. A run
with the same options then needs no network on any machine that sees the same directories.

  elasticqa prepare --recipe squad

elasticqa train --help lists the options.
"""


def main(argv: Sequence[str], environ: Mapping[str, str] = ENVIRONMENT) -> int:
    """Prepare a run and print the paths of its inputs; return 0, or 2 for a wrong request."""
    if any(argument in ("-h", "--help") for argument in argv):
        sys.stdout.write(USAGE)
        return 0
    try:
        config = parse_config(argv)
        directory = home(environ)
        lines = prepare(config, directory)
    except (ConfigError, DataError, OSError) as error:
        sys.stderr.write(f"elasticqa prepare: {' '.join(str(error).split())}\n")
        return 2
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def prepare(config: TrainConfig, directory: Path) -> list[str]:
    """Download and preprocess a run's inputs, then find them without a network; return lines with their paths.

    The model is loaded as the trainer does it, so the cache has every file that training needs, and a model that
    cannot be trained is refused here.

    Raises:
        ConfigError: the model or the data cannot be found or used.
        DataError: a file is not SQuAD v1.1.
        OSError: the files cannot be written.
    """
    load_model(resolve_model(config.model), config)
    counts = load_task(config, directory).facts
    offline = Hub(is_offline=True)
    model = resolve_model(config.model, offline)
    if isinstance(model, str):
        raise model_not_found(config.model, "the hub did not provide all of its files")
    data = resolve_dataset(config.dataset, config.eval_file, directory / "cache" / "datasets", offline)
    rows = [("model", config.model, model), ("train", f"{counts['num_train_examples']:,} questions", data.train)]
    if data.eval is not None:
        rows.append(("dev", f"{counts['num_eval_examples']:,} questions", data.eval))
    num_features = f"{counts['num_train_features']:,} train, {counts['num_eval_features']:,} dev"
    rows.append(("features", num_features, directory / "cache" / "features"))
    width = max(len(content) for _, content, _ in rows)
    variables = {"ELASTICQA_HOME": str(directory), "HF_HUB_OFFLINE": "1"}
    if model.is_relative_to(constants.HF_HUB_CACHE):
        variables["HF_HOME"] = constants.HF_HOME
    return [
        *(f"{name:<8}  {content:<{width}}  {_size(path) / 1e6:>9,.1f} MB  {path}" for name, content, path in rows),
        "",
        "All inputs are on this machine. On the machines that train, these directories must be visible; then run:",
        f"  export {' '.join(f'{name}={shlex.quote(value)}' for name, value in variables.items())}",
    ]


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all files below a directory."""
    files = (inner for inner in path.rglob("*") if inner.is_file()) if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)
