"""The matrix of a scaling study: its cells, the order of their repeats, and the training options of each cell."""

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
MAX_COUNT = 10_000
"""Upper bound for nodes, processes and repeats, which catches typing errors."""

_SET_BY_STUDY = ("--parallel", "--resume", "--name")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One configuration of a study."""

    strategy: str
    """`ddp`, `fsdp`, or `none` for the single-process reference."""
    num_nodes: int
    nproc_per_node: int
    scale: int = 1
    """Factor on the global batch and the number of features; above 1 in weak scaling only."""

    @property
    def world_size(self) -> int:
        """Number of processes over all nodes."""
        return self.num_nodes * self.nproc_per_node

    @property
    def name(self) -> str:
        """The cell's name in the study's file and in the tags of its runs.

        >>> Cell(strategy="ddp", num_nodes=2, nproc_per_node=1, scale=2).name
        'ddp-2x1-weak'
        """
        return f"{self.strategy}-{self.num_nodes}x{self.nproc_per_node}{'' if self.scale == 1 else '-weak'}"


REFERENCE = Cell(strategy="none", num_nodes=1, nproc_per_node=1)


@dataclass(frozen=True)
class Slot:
    """One repeat of a cell, counted from 1; a finished run fills it."""

    cell: Cell
    repeat: int

    def __str__(self) -> str:
        return f"{self.cell.name} repeat {self.repeat}"


@dataclass(frozen=True, kw_only=True)
class StudyMatrix:
    """The options of a study; its file holds every field."""

    strategies: tuple[str, ...]
    nodes: tuple[int, ...]
    nproc_per_node: tuple[int, ...]
    repeats: int
    mode: Mode
    scheduler: str
    cfg: str
    """Scheduler options, NAME=VALUE,..."""
    cpus_per_process: int
    memory_per_process: int
    """MiB."""
    gpus: bool
    """Whether to request one GPU per process."""
    flags: tuple[str, ...]
    """Training options."""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "StudyMatrix":
        """Return the matrix that ``to_dict`` wrote."""
        kept: dict[str, Any] = {field.name: values[field.name] for field in fields(cls)}
        return cls(**kept | {name: tuple(value) for name, value in kept.items() if isinstance(value, list)})

    def to_dict(self) -> dict[str, Any]:
        """Return every field as JSON types."""
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]

    def cells(self) -> list[Cell]:
        """Return the cells, the reference first; with one process, strong and weak scaling share a cell."""
        scales = {"strong": (False,), "weak": (True,), "both": (False, True)}[self.mode]
        cells = [
            Cell(strategy=strategy, num_nodes=nodes, nproc_per_node=nproc, scale=nodes * nproc if is_weak else 1)
            for strategy in self.strategies
            for is_weak in scales
            for nodes in self.nodes
            for nproc in self.nproc_per_node
        ]
        return list(dict.fromkeys([REFERENCE, *cells]))

    def slots(self, study_id: str) -> list[Slot]:
        """Return the slots in the order of submission.

        Each round runs every cell once in a new random order, so that slow drifts (other users, heat, caches) affect
        all cells equally. The largest cell comes first, so that the cluster refuses an impossible request at once.
        The order depends on the study's id only.
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
        """Return the config of the reference run.

        Raises:
            ConfigError: an option is wrong, or the study sets it itself.
        """
        for flag in self.flags:
            name = flag.split("=")[0].replace("_", "-")
            if name in _SET_BY_STUDY:
                raise ConfigError(f"{name} after -- is set by the study for each of its runs: leave it out")
        return parse_config(self.flags)

    def flags_of(self, cell: Cell, config: TrainConfig) -> list[str]:
        """Return the training options of a cell, given the config of the reference run; later options override earlier.

        All repeats have the same seed: they do the same work and differ in time only. ``--resume=none`` keeps a
        repeat from resuming an unfinished run of the same config.
        """
        batch = config.global_batch_size or config.micro_batch_size
        flags = [*self.flags, "--resume=none", f"--global-batch-size={batch * cell.scale}"]
        if config.max_train_features is not None and cell.scale > 1:
            flags.append(f"--max-train-features={config.max_train_features * cell.scale}")
        return flags


def check_work(matrix: StudyMatrix, config: TrainConfig, num_train_features: int) -> None:
    """Refuse a study whose cells cannot do comparable work, given the config of the reference run.

    Raises:
        ConfigError: a world size exceeds the global batch, or the data is too small for weak scaling.
    """
    limit = config.max_train_features or num_train_features
    reference = batch_plan(config, min(num_train_features, limit), 1)
    num_samples = reference.samples_seen(reference.num_steps)
    for cell in matrix.cells():
        cell_config = parse_config(matrix.flags_of(cell, config))
        limit = cell_config.max_train_features or num_train_features
        plan = batch_plan(cell_config, min(num_train_features, limit), cell.world_size)
        if plan.samples_seen(plan.num_steps) != num_samples * cell.scale:
            raise ConfigError(
                f"{cell.name} needs {cell.scale} times the features of one process, and the data has "
                f"{num_train_features:,}: weak scaling gives each process the same work; give --max-train-features "
                f"{max(1, num_train_features // max(cell.scale for cell in matrix.cells()))} or less, or --mode strong"
            )


def numbers(text: str, what: str) -> tuple[int, ...]:
    """Return the numbers in a list such as ``1,2,4``, without duplicates.

    Raises:
        ConfigError: an entry is not a number from 1 to MAX_COUNT.
    """
    found = []
    for part in text.split(","):
        if not (part.isascii() and part.isdigit() and 1 <= int(part[:9]) <= MAX_COUNT and len(part) < 9):
            raise ConfigError(
                f"{what}={shown(text)} is not a list of numbers from 1 to {MAX_COUNT:,}: write {what} 1,2"
            )
        found.append(int(part))
    return tuple(dict.fromkeys(found))


def strategies(text: str) -> tuple[str, ...]:
    """Return the strategies in a list such as ``ddp,fsdp``, without duplicates; refuse unknown ones."""
    for part in text.split(","):
        if part not in STRATEGIES:
            raise ConfigError(
                f"--strategies={shown(text)}: {shown(part)} is not one of {', '.join(STRATEGIES)}; the single-process "
                "baseline is always measured too"
            )
    return tuple(dict.fromkeys(text.split(",")))
