"""Claim an attempt: choose its run, take its number, and write the first lines of its journal."""

import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from db.journal_schema import SCHEMA_VERSION
from db.storage.run_files import journal_path
from elasticqa.config.batch_plan import BatchPlan, batch_plan
from elasticqa.config.environment import ENVIRONMENT
from elasticqa.config.train_config import TrainConfig
from elasticqa.distributed.facts import git_facts, host_facts, scheduler_facts, software_facts
from elasticqa.distributed.topology import Topology
from elasticqa.elastic.agent_directory import AgentDirectory
from elasticqa.elastic.end_causes import write_missing_end
from elasticqa.errors import ConfigError
from elasticqa.run.attempt import Attempt
from elasticqa.run.home import hold, runs_dir
from elasticqa.run.journal import FeatureLog, Journal, claim_attempt
from elasticqa.run.journal_reader import first_attempt_line, newest_end_line, read_attempt_line
from elasticqa.run.oom_records import OutOfMemoryRecord, smallest_oom_record
from elasticqa.run.system_sampler import system_sampler
from elasticqa.training.resume import RunChoice, choose_run, with_recorded_batch

SYSTEM_SAMPLE_INTERVAL_S = 5.0
_ENDED_AFTERWARDS = 5
"""Number of earlier attempts that are checked for a missing `end` line."""


def start_attempt(
    config: TrainConfig, topology: Topology, stack: ExitStack, digests: Mapping[str, str], num_train_features: int
) -> Attempt:
    """Claim an attempt of a run and write its first line; every rank must call this.

    The stack closes journals and samplers and releases the run when it unwinds. Rank 0's digests, the SHA-256 of the
    content of `dataset` and `model`, must be those of the run.

    Raises:
        ConfigError: the batch does not fit the world, the run cannot be resumed with this config, another process
            works on it, or it failed for good.
    """
    claim = topology.on_main(lambda: _claim(config, topology, stack, digests, num_train_features))
    config, choice, number = claim.config, claim.choice, claim.number
    directory = choice.directory
    started_at = psutil.Process().create_time()
    feature_log = FeatureLog(directory, number, topology.rank)
    stack.callback(feature_log.close)
    journal = None
    if topology.is_node_main:
        agent = AgentDirectory.from_env()
        if agent is not None:
            agent.announce_attempt(directory, number)
        journal = Journal(directory, number, topology.node_rank)
        stack.callback(journal.close)
        facts = _first_line(config, topology, directory, number)
        journal.write("attempt", {**facts, "started_at": started_at})
        # Readers recognize a run by its first line, so write it to disk now.
        journal.flush()
        for cause in agent.take_startup_failures() if agent is not None else []:
            data = {"kind": cause.kind, "t": cause.t}
            journal.write("event", {"name": "start_failed", "message": f"{cause}, before this attempt", "data": data})
        stack.enter_context(system_sampler(journal, topology.node_rank, SYSTEM_SAMPLE_INTERVAL_S))
    hosts = topology.gather(
        host_facts(topology.node_rank, topology.local_world_size) if topology.is_node_main else None
    )
    if topology.is_main and journal is not None:
        journal.write("hosts", {"hosts": hosts})
    return Attempt(
        config=config,
        plan=claim.plan,
        directory=directory,
        number=number,
        started_at=started_at,
        is_main=topology.is_main,
        journal=journal,
        feature_log=feature_log,
        checkpoint=choice.checkpoint,
        earlier_oom=claim.earlier_oom,
    )


@dataclass(frozen=True)
class _Claim:
    """What rank 0 decides for all ranks."""

    config: TrainConfig
    plan: BatchPlan
    choice: RunChoice
    number: int
    earlier_oom: OutOfMemoryRecord | None


def _claim(
    config: TrainConfig, topology: Topology, stack: ExitStack, digests: Mapping[str, str], num_train_features: int
) -> _Claim:
    choice = choose_run(config, runs_dir(), digests=digests)
    if choice.is_new:
        config = config.with_global_batch_size(topology.world_size)
    else:
        config = with_recorded_batch(first_attempt_line(choice.directory), config)
    plan = batch_plan(config, num_train_features, topology.world_size)
    directory = choice.directory
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not stack.enter_context(hold(directory)):
            raise ConfigError(
                f"run {directory.name} is being trained by another process: stop that one, or start a new run with "
                "--resume none"
            )
        end = newest_end_line(directory)
        # torchrun restarts a failed worker group; refuse the restart if it would raise the same error again.
        if topology.restart_count and end is not None and end.get("is_fatal"):
            raise ConfigError(f"run {directory.name} is not restarted: {end.get('reason')}")
        earlier_oom = smallest_oom_record(directory, topology.world_size)
        if topology.restart_count and earlier_oom is not None and earlier_oom.next_micro_batch_size == 0:
            raise ConfigError(
                f"run {directory.name} is not restarted: {earlier_oom.what}; use --activation-checkpointing, more "
                "processes, a smaller --max-length or model"
            )
        number = claim_attempt(directory)
        # Check several: an attempt may have been killed before it wrote the `end` line of the attempt before it.
        for earlier in range(max(1, number - _ENDED_AFTERWARDS), number):
            write_missing_end(directory, earlier)
    except OSError as error:
        raise ConfigError(
            f"run directory {directory} cannot be written ({error.strerror}): free space there, or set "
            "ELASTICQA_HOME to a directory that you can write"
        ) from error
    return _Claim(config, plan, choice, number, earlier_oom)


def _first_line(config: TrainConfig, topology: Topology, directory: Path, number: int) -> dict[str, Any]:
    scheduler = scheduler_facts(ENVIRONMENT)
    before = (read_attempt_line(journal_path(directory, number - 1)) or {}).get("scheduler")
    if isinstance(before, dict) and before.get("started_at") == scheduler["started_at"]:
        # Same scheduler start as the previous attempt: this attempt did not wait in the queue.
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
