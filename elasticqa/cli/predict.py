"""`elasticqa predict`: answer a file of questions, or one question, with a trained model."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from db.command_line import Parser
from elasticqa.config.environment import ENVIRONMENT
from elasticqa.data.squad.answers import Prediction
from elasticqa.data.squad.metric import squad_metrics
from elasticqa.data.squad.read import Example, read_squad
from elasticqa.errors import ConfigError, DataError
from elasticqa.run.home import find_run, runs_dir
from elasticqa.training.prediction import Predictor


def main(argv: Sequence[str], environ: Mapping[str, str] = ENVIRONMENT) -> int:
    """Print or write the answers; return 0, or 2 for a wrong request."""
    parser = _parser()
    options = parser.parse_args(argv)
    if (options.input is None) == (options.question is None) or (options.question is None) != (options.context is None):
        parser.error("give either --input FILE, or both --question TEXT and --context TEXT")
    try:
        examples = _examples(options)
        if options.output is not None and not options.output.parent.is_dir():
            raise ConfigError(
                f"output={str(options.output)!r} cannot be written: create the directory {options.output.parent} first"
            )
        directory = model_directory(options.model, environ)
        predictor = Predictor.load(directory, max_length=options.max_length, doc_stride=options.doc_stride)
        _print_answers(options, examples, predictor(examples))
    except (ConfigError, DataError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        return parser.refuse(error)
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="elasticqa predict",
        description="Answer questions with a trained model; prints EM and F1 if the file has answers.",
    )
    add = parser.add_argument
    add("model", metavar="MODEL", help="run id or unique prefix, or a directory with a model")
    add("--input", type=Path, metavar="FILE", help="questions in SQuAD v1.1 JSON (.gz allowed)")
    add("--question", metavar="TEXT", help="one question, with --context")
    add("--context", metavar="TEXT", help="text that contains the answer")
    add(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="write the answers to this file as SQuAD predictions (id -> text)",
    )
    add("--max-length", type=int, metavar="N", help="tokens per window (default: as in the run)")
    add("--doc-stride", type=int, metavar="N", help="overlap of two windows, in tokens (default: as in the run)")
    return parser


def model_directory(model: str, environ: Mapping[str, str]) -> Path:
    """Return the model directory that ``model`` names: a model directory, a run directory or a run id.

    Raises:
        ConfigError: the run does not exist or has no model.
    """
    directory = Path(model)
    if (directory / "config.json").is_file():
        return directory
    run = directory if (directory / "journal").is_dir() else find_run(model, runs_dir(environ))
    if not (run / "model").is_dir():
        raise ConfigError(
            f"run {run.name} has no model yet: a run writes it when it finishes; train it to the end first"
        )
    return run / "model"


def _examples(options: argparse.Namespace) -> list[Example]:
    if options.input is not None:
        return read_squad(options.input, for_training=False, needs_answers=False).examples
    for name in ("question", "context"):
        text: str = getattr(options, name)
        if not text.strip():
            raise ConfigError(f"{name}={text!r} is empty: give --{name} a text")
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            raise ConfigError(f"{name}={text!r} is not UTF-8: give --{name} a text in this terminal's encoding")
    return [Example("question", "", options.context, options.question, (), 0)]


def _print_answers(options: argparse.Namespace, examples: list[Example], predictions: list[Prediction]) -> None:
    answers = {prediction.id: prediction.text for prediction in predictions}
    if options.output is not None:
        options.output.write_text(json.dumps(answers, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        sys.stdout.write(f"{len(answers)} answers in {options.output}\n")
    elif options.input is None:
        sys.stdout.write(f"{predictions[0].text}\n")
    else:
        sys.stdout.write(json.dumps(answers, indent=1) + "\n")
    answered = [example for example in examples if example.answers]
    if answered:
        metrics = squad_metrics(answers, answered)
        # Keep standard output machine-readable when it has the answers.
        stream = sys.stderr if options.output is None else sys.stdout
        share = f"{len(answered)} of {len(examples)}" if len(answered) < len(examples) else f"{len(examples)}"
        stream.write(f"EM {metrics.em:.2f}  F1 {metrics.f1:.2f}  ({share} questions)\n")
