"""One life of the process group: whose run it is, its number, and its first and last line in the journal."""

import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil

from elasticqa.config.train_config import TrainConfig
from elasticqa.distributed.facts import git_facts, host_facts, scheduler_facts, software_facts
from elasticqa.distributed.topology import Topology
from elasticqa.elastic.end_causes import announce_attempt, take_startup_failures, write_missing_end
from elasticqa.errors import ConfigError
from elasticqa.run.attempt import Attempt
from elasticqa.run.home import runs_dir
from elasticqa.run.journal import SCHEMA_VERSION, FedLog, Journal, claim_attempt
from elasticqa.run.journal_reader import attempt_line, first_line, last_end
from elasticqa.run.lock import hold
from elasticqa.run.oom_records import Shortage, narrowest
from elasticqa.run.system_sampler import SystemSampler
from elasticqa.training.resume import RunChoice, choose_run, fixed_by

SYSTEM_SAMPLE_INTERVAL_S = 5.0
_ENDED_AFTERWARDS = 5
"""Attempts before a new one that are looked at for an end that is missing."""


def begin(config: TrainConfig, topology: Topology, stack: ExitStack, digests: Mapping[str, str]) -> Attempt:
    """Claim an attempt and write its first line; every rank must call this.

    Args:
        config: as asked for.
        topology: of this attempt.
        stack: closes journals and samplers and gives the run free when it unwinds.
        digests: of the content of `dataset` and `model`, which must be those of the run; those of rank 0 count.

    Raises:
        ConfigError: the run cannot go on with this config, or somebody works for it, or it failed for good.
    """
    config, choice, number, shortage = topology.on_main(lambda: _claim(config, topology, stack, digests))
    directory = choice.directory
    started_at = psutil.Process().create_time()
    fed_log = FedLog(directory, number, topology.rank)
    stack.callback(fed_log.close)
    journal = None
    if topology.is_node_main:
        announce_attempt(directory, number)
        journal = Journal(directory, number, topology.node_rank)
        stack.callback(journal.close)
        facts = _first_line(config, topology, directory, number)
        journal.write("attempt", {**facts, "started_at": started_at})
        # A run whose first line is lost would not be known again.
        journal.flush()
        for lost in take_startup_failures():
            data = {"kind": lost.kind, "t": lost.t}
            journal.write("event", {"name": "start_failed", "message": f"{lost}, before this attempt", "data": data})
        sampler = SystemSampler(journal, topology.node_rank, SYSTEM_SAMPLE_INTERVAL_S)
        sampler.start()
        stack.callback(sampler.stop)
    hosts = topology.gather(
        host_facts(topology.node_rank, topology.local_world_size) if topology.is_node_main else None
    )
    if topology.is_main and journal is not None:
        journal.write("hosts", {"hosts": hosts})
    return Attempt(config, directory, number, started_at, journal, fed_log, choice.checkpoint, shortage)


def _claim(
    config: TrainConfig, topology: Topology, stack: ExitStack, digests: Mapping[str, str]
) -> tuple[TrainConfig, RunChoice, int, Shortage | None]:
    choice = choose_run(config, runs_dir(), digests=digests)
    config = (
        config.with_global_batch_size(topology.world_size)
        if choice.is_new
        else fixed_by(first_line(choice.directory), config)
    )
    config.checked_global_batch_size(topology.world_size)
    try:
        choice.directory.mkdir(parents=True, exist_ok=True)
        if not stack.enter_context(hold(choice.directory)):
            raise ConfigError(
                f"run {choice.run_id} is being worked for by another process: stop that one, or start anew with "
                "--resume none"
            )
        end = last_end(choice.directory)
        # torchrun starts a failed worker group again; what fails the same way every time must not be tried again.
        if topology.restart_count and end is not None and end.get("is_fatal"):
            raise ConfigError(f"run {choice.run_id} is not tried again: {end.get('reason')}")
        shortage = narrowest(choice.directory, topology.world_size)
        if topology.restart_count and shortage is not None and shortage.micro_batch_size == 0:
            raise ConfigError(
                f"run {choice.run_id} is not tried again: {shortage.what}; use --activation-checkpointing, more "
                "processes, a smaller --max-length or model"
            )
        number = claim_attempt(choice.directory)
        # Of the last ones too, whose successors may have been killed before they did this.
        for earlier in range(max(1, number - _ENDED_AFTERWARDS), number):
            write_missing_end(choice.directory, earlier)
    except OSError as error:
        raise ConfigError(
            f"run directory {choice.directory} cannot be written ({error.strerror}): free its file system, or set "
            "ELASTICQA_HOME to a directory that you can write"
        ) from error
    return config, choice, number, shortage


def _first_line(config: TrainConfig, topology: Topology, directory: Path, number: int) -> dict[str, Any]:
    scheduler = scheduler_facts(os.environ)
    before = (attempt_line(directory, number - 1) or {}).get("scheduler")
    if isinstance(before, dict) and before.get("started_at") == scheduler["started_at"]:
        # The same start by the scheduler: this attempt has not waited in the queue again.
        scheduler["submitted_at"] = None
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": directory.name,
        "attempt": number,
        "node_rank": topology.node_rank,
        "provenance": "measured",
        "name": config.name,
        "config": config.to_dict(),
        "world_size": topology.world_size,
        "num_nodes": topology.num_nodes,
        "host": host_facts(topology.node_rank, topology.local_world_size),
        "software": software_facts(),
        "git": git_facts(Path(__file__).parent),
        "scheduler": scheduler,
        "command": [sys.executable, *sys.argv],
        "pid": os.getpid(),
        "restart_count": topology.restart_count,
    }
