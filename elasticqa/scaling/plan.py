"""What a study measures: its matrix of cells, the order of their repeats, and the trainer's flags of each."""

import json
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from elasticqa.config.batch_plan import batch_plan
from elasticqa.config.command_line import parse_config
from elasticqa.config.train_config import TrainConfig
from elasticqa.errors import ConfigError, shown

Mode = Literal["strong", "weak", "both"]
STRATEGIES = ("ddp", "fsdp")
MODES = ("strong", "weak", "both")
MOST = 10_000
"""Of nodes, processes and repeats: beyond it a number is a slip."""

_SET_HERE = ("--parallel", "--resume", "--name")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One configuration; ``scale`` multiplies the global batch and the features, and is 1 but for weak scaling."""

    strategy: str
    """`none` for the one process that all others are compared with."""
    num_nodes: int
    nproc_per_node: int
    scale: int = 1

    @property
    def world_size(self) -> int:
        """Processes over all nodes."""
        return self.num_nodes * self.nproc_per_node

    @property
    def name(self) -> str:
        """Name in the study's file and in the tags of its runs.

        >>> Cell(strategy="ddp", num_nodes=2, nproc_per_node=1, scale=2).name
        'ddp-2x1-weak'
        """
        return f"{self.strategy}-{self.num_nodes}x{self.nproc_per_node}{'' if self.scale == 1 else '-weak'}"


REFERENCE = Cell(strategy="none", num_nodes=1, nproc_per_node=1)


@dataclass(frozen=True)
class Slot:
    """One repeat of a cell, from 1; it is filled by one finished run."""

    cell: Cell
    repeat: int

    def __str__(self) -> str:
        return f"{self.cell.name} repeat {self.repeat}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What was asked for; the study's file holds every field."""

    strategies: tuple[str, ...]
    nodes: tuple[int, ...]
    nproc_per_node: tuple[int, ...]
    repeats: int
    mode: Mode
    scheduler: str
    cfg: str
    """Options of the scheduler, NAME=VALUE,..."""
    cpus_per_process: int
    memory_per_process: int
    """MiB."""
    gpus: bool
    """Ask for one GPU a process."""
    flags: tuple[str, ...]
    """Of the trainer."""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Plan":
        """Return the plan that ``to_dict`` wrote."""
        kept: dict[str, Any] = {}
        for field in fields(cls):
            value = values[field.name]
            kept[field.name] = tuple(value) if isinstance(value, list) else value
        return cls(**kept)

    def to_dict(self) -> dict[str, Any]:
        """Return every field in JSON's types."""
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]

    def cells(self) -> list[Cell]:
        """Return the cells, the reference first; what is strong and weak at once (one process) is there once."""
        scales = {"strong": (False,), "weak": (True,), "both": (False, True)}[self.mode]
        cells = [
            Cell(
                strategy=strategy,
                num_nodes=num_nodes,
                nproc_per_node=nproc,
                scale=num_nodes * nproc if is_weak else 1,
            )
            for strategy in self.strategies
            for is_weak in scales
            for num_nodes in self.nodes
            for nproc in self.nproc_per_node
        ]
        return list(dict.fromkeys([REFERENCE, *cells]))

    def slots(self, study_id: str) -> list[Slot]:
        """Return the repeats in the order in which they are submitted.

        In rounds, each cell once a round in a random order of its own: what drifts over the hours (other users, heat,
        caches) then falls on all cells alike. The largest cell comes first of all, so that what the cluster refuses
        is refused at once. The order follows from the id of the study.
        """
        shuffler = random.Random(study_id)
        slots = []
        for repeat in range(1, self.repeats + 1):
            cells = self.cells()
            shuffler.shuffle(cells)
            if repeat == 1:
                cells.sort(key=lambda cell: -cell.world_size)
            slots += [Slot(cell, repeat) for cell in cells]
        return slots

    def config(self) -> TrainConfig:
        """Return the config of the reference.

        Raises:
            ConfigError: a flag is wrong, or one that the study sets itself.
        """
        for flag in self.flags:
            name = flag.split("=")[0].replace("_", "-")
            if name in _SET_HERE:
                raise ConfigError(f"{name} after -- is set by the study for each of its runs: leave it out")
        return parse_config(self.flags)

    def flags_of(self, cell: Cell, config: TrainConfig) -> list[str]:
        """Return the trainer's flags of a cell; the last of two equal ones counts.

        Every repeat has the same seed, so that all do the same work and differ in time alone. Each is a run of its
        own, which is never taken for an unfinished one of the same config.

        Args:
            cell: of this plan.
            config: of the reference.
        """
        batch = config.fixed(1).size_for(1) * cell.scale
        flags = [*self.flags, "--resume=none", f"--global-batch-size={batch}"]
        if config.max_train_features is not None and cell.scale > 1:
            flags.append(f"--max-train-features={config.max_train_features * cell.scale}")
        return flags


def check_work(plan: Plan, config: TrainConfig, num_features: int) -> None:
    """Refuse a study whose cells could not do what they are compared for.

    Args:
        plan: of the study.
        config: of its reference.
        num_features: that the data set has for training.

    Raises:
        ConfigError: a world is larger than the batch, or the work cannot grow with the world.
    """
    limit = config.max_train_features or num_features
    reference = batch_plan(config.fixed(1), min(num_features, limit), 1)
    seen = reference.samples_seen(reference.num_steps)
    for cell in plan.cells():
        config_of = parse_config(plan.flags_of(cell, config))
        limit = config_of.max_train_features or num_features
        batches = batch_plan(config_of, min(num_features, limit), cell.world_size)
        if batches.samples_seen(batches.num_steps) != seen * cell.scale:
            raise ConfigError(
                f"{cell.name} needs {cell.scale} times the features of one process, and the data has {num_features:,}: "
                f"weak scaling gives each process the same work; give --max-train-features "
                f"{max(1, num_features // max(cell.scale for cell in plan.cells()))} or less, or --mode strong"
            )


def numbers(text: str, what: str) -> tuple[int, ...]:
    """Return the numbers of a list such as ``1,2,4``, each once.

    Raises:
        ConfigError: one is no count.
    """
    found = []
    for part in text.split(","):
        if not (part.isascii() and part.isdigit() and 1 <= int(part[:9]) <= MOST and len(part) < 9):
            raise ConfigError(f"{what}={shown(text)} is no list of counts from 1 to {MOST:,}: write {what} 1,2")
        found.append(int(part))
    return tuple(dict.fromkeys(found))


def strategies(text: str) -> tuple[str, ...]:
    """Return the strategies of a list such as ``ddp,fsdp``, each once.

    Raises:
        ConfigError: one is unknown.
    """
    for part in text.split(","):
        if part not in STRATEGIES:
            raise ConfigError(
                f"--strategies={shown(text)}: {shown(part)} is none of {', '.join(STRATEGIES)}; the baseline of one "
                "process is always measured too"
            )
    return tuple(dict.fromkeys(text.split(",")))
