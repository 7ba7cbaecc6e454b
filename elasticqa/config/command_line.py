"""The command line of a training run, generated from the fields of `TrainConfig`."""

import argparse
import io
import re
from collections.abc import Sequence
from contextlib import redirect_stderr

import tyro

from elasticqa.config.recipes import recipe
from elasticqa.config.train_config import TrainConfig
from elasticqa.errors import ConfigError, shown

MAX_ARGUMENT_CHARS = 4_096

_BOX = re.compile("[╭╮╰╯│─]+")


def parse_config(argv: Sequence[str]) -> TrainConfig:
    """Return the config of a command line: the defaults of a recipe, changed by the options.

    Raises:
        ConfigError: an option or its value is not valid; the message is one line.
        SystemExit: with status 0, after ``--help``.
    """
    for argument in argv:
        if not argument.isprintable() or len(argument) > MAX_ARGUMENT_CHARS:
            raise ConfigError(
                f"argument {shown(argument)} is not text of at most {MAX_ARGUMENT_CHARS:,} printable characters: the "
                "record holds every argument; write it in UTF-8, without control characters"
            )
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    # The parser below reports a missing value in one line.
    first.add_argument("--recipe", nargs="?", default=TrainConfig.recipe, const=TrainConfig.recipe)
    chosen, _ = first.parse_known_args(argv)
    stderr = io.StringIO()
    try:
        with redirect_stderr(stderr):
            return tyro.cli(
                TrainConfig,
                default=recipe(chosen.recipe),
                args=list(argv),
                prog="elasticqa train",
                description="Fine-tune an encoder for extractive question answering.",
            )
    except SystemExit as end:
        if end.code in (0, None):
            raise
        raise ConfigError(_one_line(stderr.getvalue())) from None


def _one_line(box: str) -> str:
    """Return the message in the box that tyro prints: the text above its first inner line."""
    lines = []
    for line in box.splitlines()[1:]:
        text = _BOX.sub("", line).strip()
        if not text:
            break
        lines.append(text)
    message = " ".join(lines) or "the command line cannot be parsed"
    return f"{message}; elasticqa train --help lists the options"
