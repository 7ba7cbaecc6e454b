"""`elasticqa scaling`: a matrix of strategies and sizes, repeated, through TorchX, to a table of speedups."""

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from db.command_line import Parser
from db.engine import DatabaseError
from elasticqa.cli.reading import complain, fresh_record
from elasticqa.config.train_config import TrainConfig
from elasticqa.data.hub import resolve_model
from elasticqa.data.task import load_task
from elasticqa.errors import ConfigError, DataError
from elasticqa.run.home import home, runs_dir
from elasticqa.scaling import state
from elasticqa.scaling.job_loop import Watch
from elasticqa.scaling.jobs import LOCAL, SCHEDULERS, Jobs, check_machine
from elasticqa.scaling.plan import MODES, MOST, Plan, check_work, numbers, strategies
from elasticqa.scaling.progress import Screen
from elasticqa.scaling.results import FORMATS, SUFFIXES, results
from elasticqa.scaling.state import Study

_IN_FLIGHT = {LOCAL: 1, "slurm": 4}
"""Runs of one machine would take the time from one another."""
_CPUS_ON_CLUSTER = 2


def main(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Run or go on with a study, or print its table.

    Returns:
        0 once every run is finished, 1 where runs have failed, 2 for a wrong request, 128 + the number of the signal
        that stopped it.
    """
    parser = _parser()
    options, flags = _split(parser, argv)
    try:
        studies = home(environ) / "studies"
        if options.table is not None:
            _print_table(state.load(state.find(options.table, studies)), options.format, environ)
            return 0
        study, is_new = _study(options, flags, studies, argv)
        with state.hold(study):
            try:
                return _work(study, options, environ)
            except ConfigError:
                if is_new and not any(item.handle for item in study.tries.values()):
                    # Refused before anything ran: the corrected command is another study.
                    study.path.unlink()
                    study.path.with_suffix(".lock").unlink()
                raise
    except (ConfigError, DataError, DatabaseError) as error:
        return complain(parser.prog, error)


def _parser() -> Parser:
    parser = Parser(
        prog="elasticqa scaling",
        description="Measure strategies and sizes against one process. What stands after -- goes to the trainer. The "
        "same command goes on with a study that was stopped: only what is missing runs.",
    )
    parser.add_argument("--strategies", default="ddp,fsdp", help="of ddp and fsdp (default: both)")
    parser.add_argument("--nodes", default="1", help="numbers of nodes, such as 1,2 (default: 1)")
    parser.add_argument("--nproc-per-node", default="1,2", help="processes a node, such as 1,2,4 (default: 1,2)")
    parser.add_argument("--repeats", default="5", metavar="N", help="runs of each configuration (default: 5)")
    parser.add_argument("--mode", choices=MODES, default="strong", help="same work, or more with more processes")
    parser.add_argument("-s", "--scheduler", choices=SCHEDULERS, default=LOCAL, help=f"of TorchX (default: {LOCAL})")
    parser.add_argument("-cfg", default="", metavar="NAME=VALUE,...", help="options of the scheduler")
    parser.add_argument("--in-flight", metavar="N", help="jobs at a time (default: 1 here, 4 on a cluster)")
    parser.add_argument("--cpus-per-process", metavar="N", help="default: an equal share here, 2 on a cluster")
    parser.add_argument("--memory-per-process", default="4096", metavar="MIB", help="asked for (default: 4096)")
    parser.add_argument("--gpus", action="store_true", help="ask for one GPU a process")
    parser.add_argument("--retry", action="store_true", help="try the failed runs of the study again")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--new", action="store_true", help="a new study, though the same has been made before")
    which.add_argument("--continue", dest="go_on", metavar="STUDY", help="go on with this study as it was asked for")
    which.add_argument("--table", metavar="STUDY", help="print the table of this study, and run nothing")
    parser.add_argument("--format", choices=tuple(FORMATS), default="markdown", help="of the table (default: markdown)")
    return parser


def _split(parser: Parser, argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    own = list(argv)
    place = own.index("--") if "--" in own else len(own)
    return parser.parse_args(own[:place]), own[place + 1 :]


def _study(
    options: argparse.Namespace, flags: Sequence[str], studies: Path, command: Sequence[str]
) -> tuple[Study, bool]:
    """Return the study to work for, and whether it begins here."""
    if options.go_on is not None:
        return state.load(state.find(options.go_on, studies)), False
    plan = _plan(options, flags)
    path = None if options.new else state.newest_like(plan, studies)
    if path is not None:
        return state.load(path), False
    # All that can be known to be wrong is refused before there is a study.
    plan.config()
    return state.create(studies, plan, ["elasticqa", "scaling", *command]), True


def _plan(options: argparse.Namespace, flags: Sequence[str]) -> Plan:
    nodes, nproc = numbers(options.nodes, "--nodes"), numbers(options.nproc_per_node, "--nproc-per-node")
    share = max(1, _num_cpus() // (max(nodes) * max(nproc))) if options.scheduler == LOCAL else _CPUS_ON_CLUSTER
    cpus = share if options.cpus_per_process is None else _number(options.cpus_per_process, "--cpus-per-process")
    return Plan(
        strategies=strategies(options.strategies),
        nodes=nodes,
        nproc_per_node=nproc,
        repeats=_number(options.repeats, "--repeats"),
        mode=options.mode,
        scheduler=options.scheduler,
        cfg=options.cfg,
        cpus_per_process=cpus,
        memory_per_process=_number(options.memory_per_process, "--memory-per-process", most=10**8),
        gpus=options.gpus,
        flags=tuple(flags),
    )


def _number(value: str, what: str, most: int = MOST) -> int:
    if not (value.isascii() and value.isdigit() and len(value) < 12 and 1 <= int(value) <= most):
        raise ConfigError(f"{what}={value!r} is no number from 1 to {most:,}")
    return int(value)


def _num_cpus() -> int:
    return len(os.sched_getaffinity(0))


def _work(study: Study, options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Fill the slots of a study and show its table."""
    screen = Screen(runs_dir(environ))
    if study.is_complete():
        screen.say(f"study {study.study_id} is complete; --new measures the same anew")
    else:
        signals, config = _Signals(), _checked(study.plan)
        in_flight = _IN_FLIGHT[study.plan.scheduler]
        if options.in_flight is not None:
            in_flight = _number(options.in_flight, "--in-flight")
        with Jobs(study.plan, study.logs) as jobs:
            # After TorchX, whose own handlers would leave a traceback.
            signals.install()
            if study.tries:
                screen.overview(study)
            watch = Watch(
                study=study,
                config=config,
                runs=screen.runs,
                jobs=jobs,
                in_flight=in_flight,
                stop=signals.stop,
                screen=screen,
            )
            watch.find_again()
            if options.retry:
                watch.retry()
            watch.run()
        if signals.number is not None:
            return _stopped(study, watch, signals.number)
    _print_table(study, options.format, environ)
    if study.is_complete():
        return 0
    if study.all_with(state.FAILED):
        screen.say(f"{len(study.all_with(state.FAILED))} runs failed; --continue {study.study_id} --retry tries again")
    return 1


def _checked(plan: Plan) -> TrainConfig:
    """Return the config of the reference, when its data and model are there and all cells can do their work."""
    config = plan.config()
    for warning in check_machine(plan, _num_cpus()):
        sys.stderr.write(f"elasticqa scaling: {warning}\n")
    resolve_model(config.model)
    check_work(plan, config, len(load_task(replace(config, max_train_features=None), home()).train))
    return config


class _Signals:
    """The first SIGINT or SIGTERM asks the study to stop; more of them change nothing."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.number: int | None = None

    def install(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note)

    def _note(self, number: int, _: object) -> None:
        self.number = number
        self.stop.set()


def _stopped(study: Study, watch: Watch, number: int) -> int:
    if study.plan.scheduler == LOCAL:
        watch.leave_local()
    left = study.all_with(state.OPEN)
    if left:
        watch.screen.say(f"{len(left)} jobs go on: {', '.join(item.handle or item.run_id for item in left)}")
    watch.screen.say(f"stopped; the same command or --continue {study.study_id} goes on")
    return 128 + number


def _print_table(study: Study, form: str, environ: Mapping[str, str]) -> None:
    """Print the table, and keep it beside the study in every format."""
    with fresh_record(environ) as session:
        table = results(session, study)
    if not table.rows:
        sys.stdout.write("\n".join([f"no run of study {study.study_id} has finished", *table.notes]) + "\n")
        return
    made_at = time.time()
    title = f"Scaling study {study.study_id}"
    texts: dict[str, str] = {name: write(title, made_at, [table]) for name, write in FORMATS.items()}
    for name, text in texts.items():
        study.path.with_suffix(SUFFIXES[name]).write_text(text, encoding="utf-8")
    sys.stdout.write(texts[form])
    sys.stdout.flush()
    sys.stderr.write(
        f"kept as {study.path.with_suffix('.md')} and .tex; on the dashboard: /speedup?study={study.study_id}\n"
    )
