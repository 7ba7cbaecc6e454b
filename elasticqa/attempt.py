"""One life of the process group: whose run it is, its number, and its first and last line in the journal."""

import os
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from elasticqa.config import TrainConfig
from elasticqa.departures import end_attempt, take_news, tell_agent
from elasticqa.environment import git_facts, host_facts, scheduler_facts, software_facts
from elasticqa.errors import ConfigError
from elasticqa.home import runs_dir
from elasticqa.journal import SCHEMA_VERSION, FedLog, Journal, claim_attempt
from elasticqa.resume import RunChoice, choose_run, fixed_by
from elasticqa.run_journal import attempt_line, first_line, last_end
from elasticqa.run_lock import hold
from elasticqa.shortage import Shortage, narrowest
from elasticqa.system import SystemSampler
from elasticqa.topology import Topology

SYSTEM_SAMPLE_INTERVAL_S = 5.0
_ENDED_AFTERWARDS = 5
"""Attempts before a new one that are looked at for an end that is missing."""


@dataclass(frozen=True)
class Attempt:
    """An attempt as one rank sees it; ``journal`` is None but on the rank of its node that writes."""

    config: TrainConfig
    """Of the run: its global batch is that of the first attempt."""
    directory: Path
    number: int
    started_at: float
    """Unix seconds when this process began."""
    journal: Journal | None
    fed_log: FedLog
    checkpoint: Path | None = None
    """To go on from; None for the newest whole one."""
    shortage: Shortage | None = None
    """What an earlier attempt had no memory for."""

    @property
    def run_id(self) -> str:
        """The run's id, the name of its directory."""
        return self.directory.name

    @property
    def micro_batch_size(self) -> int:
        """At most so many features per rank and forward pass: as asked for, or fewer where they did not fit."""
        size = self.config.micro_batch_size
        return size if self.shortage is None else min(size, max(1, self.shortage.micro_batch_size))


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
        tell_agent(directory, number)
        journal = Journal(directory, number, topology.node_rank)
        stack.callback(journal.close)
        facts = _first_line(config, topology, directory, number)
        journal.write("attempt", {**facts, "started_at": started_at})
        # A run whose first line is lost would not be known again.
        journal.flush()
        for lost in take_news():
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
    config = config.fixed(topology.world_size) if choice.is_new else fixed_by(first_line(choice.directory), config)
    config.size_for(topology.world_size)
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
            end_attempt(choice.directory, earlier)
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


def write_end(attempt: Attempt, status: str, reason: str, *, is_fatal: bool = False, **figures: Any) -> dict[str, Any]:
    """Write the attempt's last line (on the rank that has a journal) and return its fields.

    Args:
        attempt: that ends.
        status: ``finished``, ``failed`` or ``preempted``.
        reason: for a reader, on one line.
        is_fatal: the same start would fail the same way.
        figures: what the run came to.
    """
    fields = {
        "status": status,
        "reason": reason,
        "is_fatal": is_fatal,
        "wall_clock_s": time.time() - attempt.started_at,
        **figures,
    }
    if attempt.journal is not None:
        attempt.journal.write("end", fields)
        attempt.journal.flush()
    return fields
