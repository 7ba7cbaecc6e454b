"""Choose the run to train: a new one, or an unfinished one to resume."""

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from db.storage.home import RUN_ID_PATTERN
from db.storage.run_files import journal_path, main_journals
from elasticqa.checkpoint.manifest import read_manifest, step_of
from elasticqa.config.environment import ENVIRONMENT, RUN_ID_VARIABLE
from elasticqa.config.train_config import CHANGEABLE_FIELDS, CHANGEABLE_FIELDS_OF_NAMED_RUN, TrainConfig
from elasticqa.errors import CheckpointError, ConfigError, shown
from elasticqa.run.home import find_run, hold, new_run_id
from elasticqa.run.journal_reader import (
    first_attempt_line,
    is_finished,
    newest_attempt_line,
    read_attempt_line,
    read_setup_line,
    recorded_digests,
)

logger = logging.getLogger(__name__)

_CONTENTS = {"dataset": "training data", "model": "model"}


@dataclass(frozen=True)
class RunChoice:
    """The run that this start trains: a new one or one to resume."""

    directory: Path
    is_new: bool
    checkpoint: Path | None = None
    """The checkpoint to resume from; None for the newest whole one."""


def choose_run(
    config: TrainConfig,
    runs_dir: Path,
    environ: Mapping[str, str] = ENVIRONMENT,
    digests: Mapping[str, str] = MappingProxyType({}),
) -> RunChoice:
    """Return the run to train.

    In this order: the run, or the checkpoint of a run, that ``resume`` names; the run of ``ELASTICQA_RUN_ID`` if it has
    started (a requeue or a restart); with ``auto``, the newest unfinished run of the same config, data and model that
    no other process trains; else a new run. Digests of `dataset` and `model` that are missing are not compared.

    Raises:
        ConfigError: the named run does not exist, is finished, or has another config, data or model; or the variable is
            no run id.
    """
    run_id = environ.get(RUN_ID_VARIABLE) or new_run_id()
    if not RUN_ID_PATTERN.fullmatch(run_id):
        raise ConfigError(
            f"{RUN_ID_VARIABLE}={shown(run_id)} is not a run id (it could be a path outside {runs_dir}): use 1 to 64 "
            "letters, digits, '.', '_' or '-', starting with a letter or digit, or unset it"
        )
    proposed = runs_dir / run_id
    if config.resume not in ("auto", "none"):
        return _named_run(config, runs_dir, digests)
    if first_attempt_line(proposed) is not None:
        _refuse_differences(config, proposed, digests)
        return RunChoice(proposed, is_new=False)
    if config.resume == "auto":
        for directory in sorted(runs_dir.glob("*"), reverse=True):
            if RUN_ID_PATTERN.fullmatch(directory.name) and _is_unfinished(config, directory, digests):
                return RunChoice(directory, is_new=False)
    return RunChoice(proposed, is_new=True)


def _named_run(config: TrainConfig, runs_dir: Path, digests: Mapping[str, str]) -> RunChoice:
    # ``resume`` is a path, a run id or a unique prefix of one, or RUN/checkpoints/step-....
    paths = [Path(config.resume).absolute()]
    run, _, rest = config.resume.partition("/")
    with suppress(ConfigError):
        paths.append(find_run(run, runs_dir) / rest)
    for path in paths:
        checkpoint = path.resolve() if step_of(path) >= 0 and path.is_dir() else None
        directory = path.resolve() if checkpoint is None else checkpoint.parent.parent
        if first_attempt_line(directory) is not None:
            break
    else:
        raise ConfigError(
            f"resume={config.resume!r} is not a run: give auto, none, the id of a run or its beginning, a run "
            "directory (with journal/ in it) or one checkpoint of a run (RUN/checkpoints/step-...); `elasticqa runs` "
            "and `elasticqa checkpoints RUN` list what there is"
        )
    _refuse_differences(config, directory, digests)
    if checkpoint is not None and not _has_gone_back(directory, config.resume):
        try:
            read_manifest(checkpoint, verify=True)
        except CheckpointError as error:
            raise ConfigError(f"{error}; see the others with: elasticqa checkpoints {directory.name}") from error
        return RunChoice(directory, is_new=False, checkpoint=checkpoint)
    if is_finished(directory):
        raise ConfigError(
            f"run {directory.name} is finished: there is no step left to train; --resume none starts a new run"
        )
    return RunChoice(directory, is_new=False)


def _has_gone_back(directory: Path, resume: str) -> bool:
    """Whether the same command has already resumed from this checkpoint, so that this start is a restart or requeue.

    A restart resumes from the newest checkpoint: it must not discard the steps trained since.
    """
    for path in reversed(main_journals(directory)):
        line = read_attempt_line(path)
        if line is not None and _recorded_config(line).get("resume") != resume:
            return False
        if read_setup_line(path) is not None:
            logger.warning(
                "run %s has already resumed from %s, so it now resumes from its newest checkpoint; to go back again, "
                "move the newer checkpoints away",
                directory.name,
                resume,
            )
            return True
    return False


def _refuse_differences(config: TrainConfig, directory: Path, digests: Mapping[str, str]) -> None:
    may_change = CHANGEABLE_FIELDS_OF_NAMED_RUN
    differences = _differences(config, directory, first_attempt_line(directory), digests, may_change)
    if differences:
        listed = "; ".join(f"{name} was {old!r}, is {new!r}" for name, (old, new) in differences.items())
        raise ConfigError(
            f"run {directory.name} cannot be resumed with another config: {listed}; use the old values, or --resume "
            f"none for a new run (only {', '.join(sorted(may_change))} may change)"
        )


def _is_unfinished(config: TrainConfig, directory: Path, digests: Mapping[str, str]) -> bool:
    line = first_attempt_line(directory)
    if line is None or line.get("provenance") != "measured":
        return False
    # Compare with the newest attempt: it may have used another strategy than the first.
    if _differences(config, directory, newest_attempt_line(directory), digests, CHANGEABLE_FIELDS) or is_finished(
        directory
    ):
        return False
    try:
        with hold(directory) as is_mine:
            if not is_mine:
                logger.warning(
                    "run %s of the same config is being trained by another process, so this start does not resume it; "
                    "to resume it, end its processes (pgrep -f elasticqa) and start again",
                    directory.name,
                )
            return is_mine
    except OSError:  # a directory that this user cannot write
        return False


def _differences(
    config: TrainConfig,
    directory: Path,
    line: dict[str, Any] | None,
    digests: Mapping[str, str],
    may_change: frozenset[str],
) -> dict[str, tuple[Any, Any]]:
    asked = with_recorded_batch(first_attempt_line(directory), config)
    if found := asked.differences(_recorded_config(line), may_change):
        return found
    before = recorded_digests(directory)
    return {
        f"content of the {_CONTENTS[kind]} (SHA-256)": (before[kind], digest)
        for kind, digest in digests.items()
        if before.get(kind, digest) != digest
    }


def changed_since(directory: Path, attempt: int, config: TrainConfig) -> dict[str, tuple[Any, Any]]:
    """Return the changeable fields that differ, as (old, new), from the last earlier attempt that was set up.

    An attempt that ended before its setup has recorded no change and trained nothing.
    """
    paths = [path for path in reversed(main_journals(directory)) if path < journal_path(directory, attempt)]
    recorded = _recorded_config(next((read_attempt_line(path) for path in paths if read_setup_line(path)), None))
    now = config.to_dict()
    return {
        name: (recorded[name], now[name])
        for name in sorted(CHANGEABLE_FIELDS_OF_NAMED_RUN - {"resume"})
        if name in recorded and recorded[name] != now[name]
    }


def _recorded_config(line: dict[str, Any] | None) -> dict[str, Any]:
    """Return the config of an `attempt` line; empty if there is none."""
    config = (line or {}).get("config")
    return config if isinstance(config, dict) else {}


def with_recorded_batch(line: dict[str, Any] | None, config: TrainConfig) -> TrainConfig:
    """Return the config with the global batch of a run, given the `attempt` line of its first attempt."""
    world_size = (line or {}).get("world_size")
    if not isinstance(world_size, int) or world_size < 1:
        world_size = 1
    size, micro = map(_recorded_config(line).get, ("global_batch_size", "micro_batch_size"))
    if isinstance(micro, int) and size == micro * world_size and size > 0:
        # The recorded size was the default of the first attempt; keep it even if the micro-batch size has changed.
        return replace(config, global_batch_size=config.global_batch_size or size)
    return config.with_global_batch_size(world_size)
