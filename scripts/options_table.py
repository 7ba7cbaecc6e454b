#!/usr/bin/env python3
"""Write docs/options.md from the fields of TrainConfig; --check tells whether it is fresh."""

import ast
import inspect
import sys
from dataclasses import fields
from pathlib import Path

from elasticqa.config.recipes import RECIPES, recipe
from elasticqa.config.train_config import TrainConfig

PAGE = Path(__file__).resolve().parent.parent / "docs" / "options.md"


def help_texts() -> dict[str, str]:
    """Return the docstring of each field."""
    (definition,) = ast.parse(inspect.getsource(TrainConfig)).body
    assert isinstance(definition, ast.ClassDef)
    texts = {}
    for field, text in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            texts[field.target.id] = str(ast.literal_eval(text.value))
    return texts


def page() -> str:
    """Return the text of the page."""
    texts = help_texts()
    rows = []
    for field in fields(TrainConfig):
        values = " | ".join(f"`{getattr(recipe(name), field.name)}`" for name in RECIPES)
        rows.append(f"| `--{field.name.replace('_', '-')}` | {values} | {' '.join(texts[field.name].split())} |")
    return "\n".join(
        [
            "# Options of a training run",
            "",
            "They follow `--` of a component, or `elasticqa train`. Each recipe sets its own defaults; without",
            "`--recipe` it is `demo`. `None` means: not set. An option that is `False` here is a switch (`--profile`,",
            "`--no-profile`); one that may be unset takes its value (`--compile True`). Made by",
            "`python scripts/options_table.py`.",
            "",
            f"| option | {' | '.join(RECIPES)} | meaning |",
            f"|---{'|---' * len(RECIPES)}|---|",
            *rows,
            "",
        ]
    )


def main() -> int:
    """Write the page, or with --check compare."""
    if sys.argv[1:] == ["--check"]:
        if PAGE.read_text(encoding="utf-8") == page():
            return 0
        print("docs/options.md is stale: run python scripts/options_table.py", file=sys.stderr)
        return 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
