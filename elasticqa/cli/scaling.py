"""`elasticqa scaling`: run a matrix of strategies and sizes as TorchX jobs and print the table of speedups."""

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from db.command_line import Parser, count_up_to
from db.engine import DatabaseError
from db.reports import FORMATS
from elasticqa.cli.record import updated_session
from elasticqa.config.environment import ENVIRONMENT
from elasticqa.config.train_config import TrainConfig
from elasticqa.data.hub import resolve_model
from elasticqa.data.task import load_task
from elasticqa.errors import ConfigError, DataError
from elasticqa.run.home import home, runs_dir
from elasticqa.scaling.job_loop import JobLoop
from elasticqa.scaling.jobs import LOCAL, SCHEDULERS, Jobs, check_machine
from elasticqa.scaling.matrix import MAX_COUNT, MODES, StudyMatrix, check_work, numbers, strategies
from elasticqa.scaling.progress import SUFFIXES, Progress, results
from elasticqa.scaling.study import FAILED, OPEN, Study, create, find, hold, load, newest_like

_MAX_IN_FLIGHT = {LOCAL: 1, "slurm": 4}
"""Jobs at a time, by scheduler; one on this machine, where parallel runs would slow each other down."""
_CPUS_ON_CLUSTER = 2


def main(argv: Sequence[str], environ: Mapping[str, str] = ENVIRONMENT) -> int:
    """Start or continue a study, or print its table.

    Returns:
        0 if every run has finished, 1 if some failed, 2 for a wrong request, 128 + the signal's number if a signal
        stopped the study.
    """
    parser = _parser()
    options, flags = _split(parser, argv)
    try:
        studies = home(environ) / "studies"
        if options.table is not None:
            _print_table(load(find(options.table, studies)), options.format, environ)
            return 0
        study, is_new = _study(options, flags, studies, argv)
        with hold(study):
            try:
                return _run(study, options, environ)
            except ConfigError:
                if is_new and not any(run.handle for run in study.runs.values()):
                    # No job was submitted: delete the study, so that the corrected command starts a new one.
                    study.path.unlink()
                    study.path.with_suffix(".lock").unlink()
                raise
    except (ConfigError, DataError, DatabaseError) as error:
        return parser.refuse(error)


def _parser() -> Parser:
    parser = Parser(
        prog="elasticqa scaling",
        description="Measure the speedup of strategies and sizes over a single process. Options after -- go to every "
        "training run. The same command continues a study that was stopped: only missing runs are started.",
    )
    add, count = parser.add_argument, count_up_to(MAX_COUNT)
    add("--strategies", default="ddp,fsdp", help="ddp, fsdp or both (default: ddp,fsdp)")
    add("--nodes", default="1", help="numbers of nodes, such as 1,2 (default: 1)")
    add("--nproc-per-node", default="1,2", help="processes per node, such as 1,2,4 (default: 1,2)")
    add("--repeats", type=count, default=5, metavar="N", help="runs of each configuration (default: 5)")
    add(
        "--mode",
        choices=MODES,
        default="strong",
        help="scaling: same total work (strong), or same work per process (weak) (default: strong)",
    )
    add("-s", "--scheduler", choices=SCHEDULERS, default=LOCAL, help=f"TorchX scheduler (default: {LOCAL})")
    add("-cfg", default="", metavar="NAME=VALUE,...", help="options of the scheduler")
    add("--in-flight", type=count, metavar="N", help="jobs at a time (default: 1 on this machine, 4 on a cluster)")
    add(
        "--cpus-per-process",
        type=count,
        metavar="N",
        help="CPUs per process (default: an equal share on this machine, 2 on a cluster)",
    )
    add(
        "--memory-per-process",
        type=count_up_to(10**8),
        default=4096,
        metavar="MIB",
        help="memory to request per process (default: 4096)",
    )
    add("--gpus", action="store_true", help="request one GPU per process")
    add("--retry", action="store_true", help="run the failed runs of the study again")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--new", action="store_true", help="start a new study even if an equal one exists")
    which.add_argument(
        "--continue", dest="study_to_continue", metavar="STUDY", help="continue this study with its own options"
    )
    which.add_argument("--table", metavar="STUDY", help="print the table of this study and run nothing")
    add("--format", choices=tuple(FORMATS), default="markdown", help="format of the table (default: markdown)")
    return parser


def _split(parser: Parser, argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the study's own options, and the training options after ``--``."""
    own = list(argv)
    place = own.index("--") if "--" in own else len(own)
    return parser.parse_args(own[:place]), own[place + 1 :]


def _study(
    options: argparse.Namespace, flags: Sequence[str], studies: Path, command: Sequence[str]
) -> tuple[Study, bool]:
    """Return the study to run, and whether it is new."""
    if options.study_to_continue is not None:
        return load(find(options.study_to_continue, studies)), False
    matrix = _matrix(options, flags)
    path = None if options.new else newest_like(matrix, studies)
    if path is not None:
        return load(path), False
    # Check the training options before the study's file is created.
    matrix.config()
    return create(studies, matrix, ["elasticqa", "scaling", *command]), True


def _matrix(options: argparse.Namespace, flags: Sequence[str]) -> StudyMatrix:
    nodes, nproc = numbers(options.nodes, "--nodes"), numbers(options.nproc_per_node, "--nproc-per-node")
    share = max(1, _num_cpus() // (max(nodes) * max(nproc))) if options.scheduler == LOCAL else _CPUS_ON_CLUSTER
    return StudyMatrix(
        strategies=strategies(options.strategies),
        nodes=nodes,
        nproc_per_node=nproc,
        repeats=options.repeats,
        mode=options.mode,
        scheduler=options.scheduler,
        cfg=options.cfg,
        cpus_per_process=options.cpus_per_process or share,
        memory_per_process=options.memory_per_process,
        gpus=options.gpus,
        flags=tuple(flags),
    )


def _num_cpus() -> int:
    return len(os.sched_getaffinity(0))


def _run(study: Study, options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Run the missing runs of a study, print its table and return the exit status."""
    progress = Progress(runs_dir(environ))
    if study.is_complete():
        progress.line(f"study {study.study_id} is complete; --new measures it again")
    else:
        stop, config = threading.Event(), _checked(study.matrix)
        with Jobs(study.matrix, study.logs) as jobs:
            # Install the handlers after TorchX has installed its own, which print a traceback.
            received = _set_at_signals(stop)
            if study.runs:
                progress.print_table(study)
            loop = JobLoop(
                study=study,
                config=config,
                runs_dir=progress.runs_dir,
                jobs=jobs,
                max_in_flight=options.in_flight or _MAX_IN_FLIGHT[study.matrix.scheduler],
                stop=stop,
                progress=progress,
            )
            loop.reattach()
            if options.retry:
                loop.retry_failed()
            loop.run()
        if received:
            return _stopped(study, loop, received[-1])
    _print_table(study, options.format, environ)
    if study.is_complete():
        return 0
    num_failed = len(study.runs_with(FAILED))
    if num_failed:
        progress.line(f"{num_failed} runs failed; run them again with --continue {study.study_id} --retry")
    return 1


def _checked(matrix: StudyMatrix) -> TrainConfig:
    """Return the config of the reference run, after checking model and data, and that all cells do comparable work."""
    config = matrix.config()
    for warning in check_machine(matrix, _num_cpus()):
        sys.stderr.write(f"elasticqa scaling: {warning}\n")
    resolve_model(config.model)
    check_work(matrix, config, len(load_task(replace(config, max_train_features=None), home()).train))
    return config


def _set_at_signals(stop: threading.Event) -> list[int]:
    """Set ``stop`` at SIGINT or SIGTERM; return a list that then contains the signal's number."""
    received: list[int] = []

    def handle(number: int, _: object) -> None:
        received.append(number)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
    return received


def _stopped(study: Study, loop: JobLoop, number: int) -> int:
    """Print which jobs keep running and how to continue the study; return 128 + the signal's number."""
    if study.matrix.scheduler == LOCAL:
        loop.remove_stopped()
    in_flight = [run.handle or run.run_id for run in study.runs_with(OPEN)]
    if in_flight:
        loop.progress.line(f"{len(in_flight)} jobs keep running: {', '.join(in_flight)}")
    loop.progress.line(f"stopped; continue with the same command or with --continue {study.study_id}")
    return 128 + number


def _print_table(study: Study, form: str, environ: Mapping[str, str]) -> None:
    """Print the table, and write it next to the study's file in every format."""
    with updated_session(environ) as session:
        table = results(session, study)
    if not table.rows:
        sys.stdout.write("\n".join([f"no run of study {study.study_id} has finished", *table.notes]) + "\n")
        return
    made_at = time.time()
    title = f"Scaling study {study.study_id}"
    texts = {name: write(title, made_at, [table]) for name, write in FORMATS.items()}
    for name, text in texts.items():
        study.path.with_suffix(SUFFIXES[name]).write_text(text, encoding="utf-8")
    sys.stdout.write(texts[form])
    sys.stdout.flush()
    sys.stderr.write(
        f"written to {study.path.with_suffix('.md')} and .tex; on the dashboard: /speedup?study={study.study_id}\n"
    )
