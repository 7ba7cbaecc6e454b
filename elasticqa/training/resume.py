"""Which run a start belongs to: a new one, or an unfinished one that goes on."""

import logging
from collections.abc import Mapping
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
from elasticqa.run.home import find_run, new_run_id
from elasticqa.run.journal_reader import (
    first_attempt_line,
    is_finished,
    newest_attempt_line,
    read_attempt_line,
    read_setup_line,
    recorded_digests,
)
from elasticqa.run.lock import hold

logger = logging.getLogger(__name__)

_CONTENTS = {"dataset": "training data", "model": "model"}


@dataclass(frozen=True)
class RunChoice:
    """The directory of the run that this start works for, and whether it has been worked for before."""

    directory: Path
    is_new: bool
    checkpoint: Path | None = None
    """To go on from; None for the newest whole one."""

    @property
    def run_id(self) -> str:
        """The run's id, the name of its directory."""
        return self.directory.name


def choose_run(
    config: TrainConfig,
    runs_dir: Path,
    environ: Mapping[str, str] = ENVIRONMENT,
    digests: Mapping[str, str] = MappingProxyType({}),
) -> RunChoice:
    """Return the run to work for.

    In this order: the run, or the checkpoint of a run, that ``resume`` names; the run of ``ELASTICQA_RUN_ID`` if it has
    begun (a requeue or a restart); with ``auto``, the newest unfinished run of the same config, data and model that
    nobody works for; else a new run.

    Args:
        config: as asked for.
        runs_dir: one directory a run.
        environ: for the variable.
        digests: of the content of `dataset` and `model`; what is absent is not compared.

    Raises:
        ConfigError: what is named does not exist, is finished, or learns something else; or the variable is no run id.
    """
    run_id = environ.get(RUN_ID_VARIABLE) or new_run_id()
    if not RUN_ID_PATTERN.fullmatch(run_id):
        raise ConfigError(
            f"{RUN_ID_VARIABLE}={shown(run_id)} is not a plain name, so it could lead out of {runs_dir}: use 1 to 64 "
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
    for path in (Path(config.resume).absolute(), *_of_id(config.resume, runs_dir)):
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
            f"run {directory.name} is finished: there is no step left to train; --resume none begins a new run"
        )
    return RunChoice(directory, is_new=False)


def _of_id(text: str, runs_dir: Path) -> list[Path]:
    """Return where a run, or a checkpoint of it, lies whose id the text begins with, or the only id to begin so."""
    run, _, rest = text.partition("/")
    try:
        return [runs_dir / find_run(run, runs_dir) / rest]
    except ConfigError:
        return []


def _has_gone_back(directory: Path, resume: str) -> bool:
    """Whether the newest attempts were asked for the same checkpoint and one went on from it: this one is a restart.

    What these attempts have learned since must not be thrown away by a restart or a requeue of the same command.
    """
    for path in reversed(main_journals(directory)):
        line = read_attempt_line(path)
        recorded = (line or {}).get("config")
        if line is not None and (not isinstance(recorded, dict) or recorded.get("resume") != resume):
            return False
        if read_setup_line(path) is not None:
            logger.warning(
                "run %s has gone back to %s already and goes on from its newest checkpoint; to go back once more, move "
                "the newer ones away",
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
            f"run {directory.name} cannot go on with another config: {listed}; give it the old values, or --resume "
            f"none for a new run (only {', '.join(sorted(may_change))} may change)"
        )


def _is_unfinished(config: TrainConfig, directory: Path, digests: Mapping[str, str]) -> bool:
    line = first_attempt_line(directory)
    if line is None or line.get("provenance") != "measured":
        return False
    # By its newest attempt, which may compute in another way than the first.
    if _differences(config, directory, newest_attempt_line(directory), digests, CHANGEABLE_FIELDS) or is_finished(
        directory
    ):
        return False
    try:
        with hold(directory) as is_mine:
            if not is_mine:
                logger.warning(
                    "run %s of the same config is being worked for by another process, so this is not it; to go on "
                    "with that one, end its processes (pgrep -f elasticqa) and start again",
                    directory.name,
                )
            return is_mine
    except OSError:  # somebody else's directory, which cannot be written
        return False


def _differences(
    config: TrainConfig,
    directory: Path,
    line: dict[str, Any] | None,
    digests: Mapping[str, str],
    may_change: frozenset[str],
) -> dict[str, tuple[Any, Any]]:
    recorded = (line or {}).get("config")
    found = fixed_by(first_attempt_line(directory), config).differences(
        recorded if isinstance(recorded, dict) else {}, may_change
    )
    if found:
        return found
    before = recorded_digests(directory)
    return {
        f"content of the {_CONTENTS[kind]} (SHA-256)": (before[kind], digest)
        for kind, digest in digests.items()
        if before.get(kind, digest) != digest
    }


def changed_since(directory: Path, attempt: int, config: TrainConfig) -> dict[str, tuple[Any, Any]]:
    """Return what may change on resume and did, as (old, new), since the newest attempt before that was set up.

    One that ended before has told no change, and has trained nothing.
    """
    paths = [path for path in reversed(main_journals(directory)) if path < journal_path(directory, attempt)]
    recorded = next((read_attempt_line(path) or {} for path in paths if read_setup_line(path)), {}).get("config")
    if not isinstance(recorded, dict):
        return {}
    now = config.to_dict()
    return {
        name: (recorded[name], now[name])
        for name in sorted(CHANGEABLE_FIELDS_OF_NAMED_RUN - {"resume"})
        if name in recorded and recorded[name] != now[name]
    }


def fixed_by(line: dict[str, Any] | None, config: TrainConfig) -> TrainConfig:
    """Return the config with the global batch of a run, given the `attempt` line of its first attempt."""
    recorded, world_size = (line or {}).get("config"), (line or {}).get("world_size")
    if not isinstance(world_size, int) or world_size < 1:
        world_size = 1
    size, micro = map((recorded if isinstance(recorded, dict) else {}).get, ("global_batch_size", "micro_batch_size"))
    if isinstance(micro, int) and size == micro * world_size and size > 0:
        # As the first start found it, whatever the micro-batch is now.
        return replace(config, global_batch_size=config.global_batch_size or size)
    return config.with_global_batch_size(world_size)
