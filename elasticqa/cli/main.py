"""The command `elasticqa`: finds the module of a subcommand and hands it the rest; --help imports nothing else."""

import importlib
import os
import sys
from collections.abc import Sequence

COMMANDS = {
    "train": ("elasticqa.cli.launch", "fine-tune a model in this process; the components start several"),
    "predict": ("elasticqa.cli.predict", "answer questions with a trained model"),
    "runs": ("elasticqa.cli.runs", "list the recorded runs"),
    "show": ("elasticqa.cli.show", "one run in detail"),
    "checkpoints": ("elasticqa.cli.checkpoints", "what a run could go on from, and whether it is whole"),
    "report": ("elasticqa.cli.report", "a report of runs as Markdown, LaTeX or HTML"),
    "scaling": ("elasticqa.cli.scaling", "measure strategies and sizes against one process, with repeats"),
    "annotate": ("elasticqa.cli.annotate", "name, tag or note a run"),
    "ingest": ("elasticqa.cli.ingest", "bring the database up to the journals"),
    "import": ("elasticqa.cli.import_", "add results of other tools, or a bundle"),
    "export": ("elasticqa.cli.export", "pack a run into one file"),
    "profile": ("elasticqa.cli.profile", "summarize a profiler trace"),
    "prepare": (
        "elasticqa.cli.prepare",
        "fetch model and data and make the features, for nodes without a network",
    ),
    "doctor": ("elasticqa.cli.doctor.command", "check this machine or cluster and say how to fix problems"),
}


def usage() -> str:
    """Return the text of ``elasticqa --help``."""
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items())
    return (
        "usage: elasticqa COMMAND [OPTION ...]\n\n"
        "Elastic fine-tuning for extractive question answering, with a record of every run.\n\n"
        f"commands:\n{rows}\n\n"
        "elasticqa COMMAND --help tells the options of a command.\n"
        "Several processes or nodes: torchx run -s local_cwd components/train.py:ddp\n"
        "Dashboard: uvicorn dashboard.app:app\n"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand and return its exit status: 0, or 2 for a wrong request, said in one line."""
    status = 0
    try:
        status = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of a pipe (head, less) went away; nothing is wrong by that, and nothing more can be written.
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
        sys.stderr.write(f"elasticqa: {name!r} is no command: use one of {', '.join(COMMANDS)}\n")
        return 2
    status: int = importlib.import_module(COMMANDS[name][0]).main(rest)
    return status


if __name__ == "__main__":
    sys.exit(main())
