"""The command `elasticqa`: import the module of a subcommand and run it; --help imports no other module."""

import importlib
import os
import sys
from collections.abc import Sequence

COMMANDS = {
    "train": ("elasticqa.cli.launch", "fine-tune a model in this process"),
    "predict": ("elasticqa.cli.predict", "answer questions with a trained model"),
    "runs": ("elasticqa.cli.runs", "list the recorded runs"),
    "show": ("elasticqa.cli.show", "show one run in detail"),
    "checkpoints": ("elasticqa.cli.checkpoints", "list and verify a run's checkpoints"),
    "report": ("elasticqa.cli.report", "write a report of runs as Markdown, LaTeX or HTML"),
    "scaling": ("elasticqa.cli.scaling", "measure the speedup of strategies and sizes, with repeats"),
    "annotate": ("elasticqa.cli.annotate", "name, tag or comment a run"),
    "ingest": ("db.ingest.update", "update the database from the journals"),
    "import": ("elasticqa.cli.import_", "import results of other tools, or an exported run"),
    "export": ("elasticqa.cli.export", "pack a run into one file"),
    "profile": ("elasticqa.cli.profile", "summarize a profiler trace"),
    "prepare": ("elasticqa.cli.prepare", "download and preprocess the inputs of a run, for nodes without a network"),
    "doctor": ("elasticqa.cli.doctor.command", "check this machine or cluster and say how to fix problems"),
}


def usage() -> str:
    """Return the text of ``elasticqa --help``."""
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items())
    return (
        "usage: elasticqa COMMAND [OPTION ...]\n\n"
        "Elastic fine-tuning for extractive question answering; every run is recorded.\n\n"
        f"commands:\n{rows}\n\n"
        "elasticqa COMMAND --help lists the options of a command.\n"
        "To train with several processes or nodes: torchx run -s local_cwd components/train.py:ddp\n"
        "Dashboard: uvicorn dashboard.app:app\n"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand and return its exit status; a wrong request is 2, with one line on standard error."""
    status = 0
    try:
        status = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the pipe (head, less) has closed it, which is not an error; drop the rest of the output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return 130
    return status


def _run(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.stdout.write(usage())
        return 0
    name, rest = arguments[0], arguments[1:]
    if name not in COMMANDS:
        sys.stderr.write(f"elasticqa: {name!r} is not a command: use one of {', '.join(COMMANDS)}\n")
        return 2
    status: int = importlib.import_module(COMMANDS[name][0]).main(rest)
    return status


if __name__ == "__main__":
    sys.exit(main())
