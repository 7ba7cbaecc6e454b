"""One rank of a training run: `python -m elasticqa.training.main`, or in the process of `elasticqa train`."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack

from torch.distributed.elastic.multiprocessing.errors import record

from elasticqa.checkpoint.export import save_pretrained
from elasticqa.elastic.end_causes import membership_changes
from elasticqa.errors import ExitCode
from elasticqa.run.attempt import Attempt, write_end
from elasticqa.training.builder import add_profiler, build_trainer
from elasticqa.training.claim import start_attempt
from elasticqa.training.console import closing, opening
from elasticqa.training.ingest import INGEST_TIMEOUT_S, STOPPED_INGEST_TIMEOUT_S, ingest
from elasticqa.training.loading import load
from elasticqa.training.restore import restore, setup_facts
from elasticqa.training.step_metrics import memory_peaks
from elasticqa.training.trainer import Trainer
from elasticqa.training.worker import Worker, run_worker


@record
def main(argv: Sequence[str] | None = None) -> int:
    """Train one run, or resume it, and return the exit code of this rank."""
    return run_worker(sys.argv[1:] if argv is None else argv, train)


def train(worker: Worker) -> int:
    """Load, claim, build, restore, train, export, and record how it ended; every rank must call this.

    Nothing is written to the run directory before data and model are loaded.
    """
    config, topology, timer = worker.config, worker.topology, worker.timer
    loaded = load(config, topology, timer)
    with ExitStack() as stack:
        attempt = start_attempt(config, topology, stack, loaded.digests, len(loaded.task.train))
        timer.end("claim")
        with worker.attempt(attempt):
            trainer = build_trainer(topology, loaded, attempt, worker.stop, stack)
            resumed_from = restore(trainer, attempt)
            add_profiler(trainer, attempt)
            setup = setup_facts(trainer, loaded, attempt, resumed_from)
            timer.end("build")
            trainer.recorder.write("setup", setup | {"phases": timer.take()})
            trainer.recorder.print_line(opening(attempt.config, topology, setup, attempt))
            worker.early_exit.cancel()
            with worker.health_check.main_thread.active():
                trainer.train()
                timer.skip()
                if trainer.stopped_by is None:
                    model, target = trainer.train_step.model, attempt.directory / "model"
                    save_pretrained(model, loaded.pretrained, loaded.task.tokenizer, target, topology)
                    timer.end("export")
        worker.health_check.close()
        after = {"first_pass": trainer.first_pass_time_s, **timer.take()}
        totals = trainer.progress.totals() | memory_peaks(topology.device)
        end = write_end(attempt, *_status(trainer, attempt), **totals, phases=after)
        trainer.recorder.log_totals(end)
    if topology.is_main:
        problem = ingest(INGEST_TIMEOUT_S if trainer.stopped_by is None else STOPPED_INGEST_TIMEOUT_S)
        trainer.recorder.print_line(closing(attempt, end, trainer.recorder.evaluations, problem))
    return 0 if trainer.stopped_by is None else ExitCode.STOPPED


def _status(trainer: Trainer, attempt: Attempt) -> tuple[str, str]:
    if trainer.stopped_by is None:
        return "finished", "trained to the last step"
    changes = membership_changes(attempt.directory, attempt.number, trainer.topology.num_nodes)
    return "preempted", f"asked to stop by {trainer.stopped_by.name}{changes}"


if __name__ == "__main__":
    sys.exit(main())
