"""`elasticqa predict`: answers of a trained model to a file of questions, or to one."""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from db.command_line import Parser
from elasticqa.cli.reading import complain
from elasticqa.data.squad.answers import Prediction
from elasticqa.data.squad.metric import squad_metrics
from elasticqa.data.squad.read import Example, read_squad
from elasticqa.errors import ConfigError, DataError
from elasticqa.run.home import find_run, runs_dir
from elasticqa.training.prediction import Predictor


def main(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Answer and return 0, or 2 where the request cannot be met."""
    parser = _parser()
    options = parser.parse_args(argv)
    if (options.input is None) == (options.question is None) or (options.question is None) != (options.context is None):
        parser.error("give either --input FILE, or both --question TEXT and --context TEXT")
    try:
        examples = _examples(options)
        if options.output is not None and not options.output.parent.is_dir():
            raise ConfigError(f"output={str(options.output)!r} is in no directory: make {options.output.parent} first")
        directory = model_directory(options.model, environ)
        predictor = Predictor.load(directory, max_length=options.max_length, doc_stride=options.doc_stride)
        _tell(options, examples, predictor(examples))
    except (ConfigError, DataError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        return complain(parser.prog, error)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="elasticqa predict",
        description="Answer questions with a trained model; EM and F1 are told where the file has answers.",
    )
    parser.add_argument("model", metavar="MODEL", help="a run (its id or the beginning), or a directory with a model")
    parser.add_argument("--input", type=Path, metavar="FILE", help="questions in SQuAD v1.1 JSON (.gz allowed)")
    parser.add_argument("--question", metavar="TEXT", help="one question, with --context")
    parser.add_argument("--context", metavar="TEXT", help="the text that holds its answer")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write the answers there as SQuAD predictions (id -> text)"
    )
    parser.add_argument("--max-length", type=int, metavar="N", help="tokens of a window (default: those of the run)")
    parser.add_argument(
        "--doc-stride", type=int, metavar="N", help="tokens by which two windows overlap (default: those of the run)"
    )
    return parser


def model_directory(model: str, environ: Mapping[str, str]) -> Path:
    """Return the directory of a model: that one itself, or the one in a run directory or in the run of an id.

    Raises:
        ConfigError: there is no such run, or it has no model.
    """
    directory = Path(model)
    if (directory / "config.json").is_file():
        return directory
    run = directory if (directory / "journal").is_dir() else runs_dir(environ) / find_run(model, runs_dir(environ))
    if not (run / "model").is_dir():
        raise ConfigError(
            f"run {run.name} has no model yet: it is written when a run has finished; train it to the end first"
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


def _tell(options: argparse.Namespace, examples: list[Example], predictions: list[Prediction]) -> None:
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
        # Answers on standard output are for a program to read.
        stream = sys.stderr if options.output is None else sys.stdout
        share = f"{len(answered)} of {len(examples)}" if len(answered) < len(examples) else f"{len(examples)}"
        stream.write(f"EM {metrics.em:.2f}  F1 {metrics.f1:.2f}  ({share} questions)\n")
