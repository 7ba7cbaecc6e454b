"""Faults and the steps at which they hit a run: drawn from a seed, so that a failing schedule can be run again."""

import random
from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal[
    "kill_worker",
    "kill_agent",
    "kill_node",
    "terminate_worker",
    "terminate_agent",
    "stop_worker",
    "pause_worker",
    "join",
    "leave",
    "tear_checkpoint",
    "flip_checkpoint",
    "fill_disk",
    "lock_database",
    "remove_database",
    "break_database",
    "kill_ingest",
]

HARMLESS = frozenset({"pause_worker", "lock_database", "remove_database", "break_database", "kill_ingest"})
"""Faults that must not affect the training; after the others another attempt continues the run."""

NUM_STEPS = 96
"""Of 12 epochs of 53 features, 7 a step: 8 steps an epoch, and 4 features in its last."""
CHECKPOINT_EVERY = 10
EVALUATE_EVERY = 15


@dataclass(frozen=True)
class Event:
    """A fault.

    Attributes:
        kind: what happens.
        at_step: hits after so many steps of the run, in an attempt that began after the previous fault; 0: as soon as
            there is a worker.
        node: index into the nodes that run then, modulo their number.
        variant: of faults that have several.
    """

    kind: Kind
    at_step: int
    node: int = 0
    variant: int = 0


@dataclass(frozen=True)
class Schedule:
    """A run and its faults.

    Attributes:
        name: of the schedule.
        nnodes: as the launcher takes it.
        first_nodes: agents that start the job.
        events: in order.
        parallel: strategy.
    """

    name: str
    nnodes: str
    first_nodes: int
    events: tuple[Event, ...]
    parallel: Literal["ddp", "fsdp"] = "ddp"

    @property
    def is_elastic(self) -> bool:
        """Whether the world size may change; if not, all losses must be equal bit for bit."""
        return ":" in self.nnodes and len(set(self.nnodes.split(":"))) > 1


_FIXED: tuple[Kind, ...] = tuple(kind for kind in get_args(Kind) if kind not in ("join", "leave"))
# The only worker of a world of one may be stopped without being detected.
_ELASTIC: tuple[Kind, ...] = (*(kind for kind in _FIXED if kind != "stop_worker"), "join", "leave", "join", "leave")
_GAP = 20
"""Steps between two faults: two checkpoints, and some steps after the second one."""


def draw(seed: int) -> Schedule:
    """Return the schedule of a seed: one to four faults, with a fixed or elastic world size, DDP or FSDP."""
    chance = random.Random(seed)
    is_elastic = chance.random() < 0.5
    parallel: Literal["ddp", "fsdp"] = "fsdp" if chance.random() < 0.2 else "ddp"
    events: list[Event] = []
    step = chance.randrange(1, _GAP)
    nodes = chance.choice((1, 2, 3)) if is_elastic else chance.choice((2, 2, 3))
    first_nodes = nodes
    for _ in range(chance.randrange(1, 5)):
        kind = chance.choice(_ELASTIC if is_elastic else _FIXED)
        # The job would end with its last node, and it has at most four.
        if kind == "join" and nodes == 4:
            kind = "leave"
        if kind == "leave" and nodes == 1:
            kind = "join"
        if is_elastic:
            nodes += {"join": 1, "leave": -1, "kill_agent": -1, "kill_node": -1, "terminate_agent": -1}.get(kind, 0)
            nodes = nodes or first_nodes
        is_at_start = bool(events) and kind.startswith(("kill", "terminate")) and chance.random() < 0.2
        events.append(Event(kind, 0 if is_at_start else step, chance.randrange(4), chance.randrange(4)))
        step += chance.randrange(_GAP // 2, _GAP + 1)
    nnodes = "1:4" if is_elastic else f"{first_nodes}:{first_nodes}"
    return Schedule(f"seed-{seed}", nnodes, first_nodes, tuple(events), parallel)
