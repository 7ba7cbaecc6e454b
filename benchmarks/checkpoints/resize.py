"""Resumes checkpoints at another world size and with the other strategy: losses, times and bytes.

One process starts the ranks of each part itself. Dropout is off, so that losses of different world sizes can be equal.
"""

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from benchmarks.support.setup import Data, facts, model_name, parser, write
from benchmarks.training.elasticqa_loop import Loop
from elasticqa.checkpoint.checkpointer import Checkpointer
from elasticqa.config.train_config import Parallel, TrainConfig
from elasticqa.distributed.topology import Topology
from elasticqa.training.app_state import app_state_of
from elasticqa.training.worker import PROCESS_GROUP_TIMEOUT

STRATEGIES: tuple[Parallel, ...] = ("ddp", "fsdp")


@dataclass(frozen=True)
class Part:
    """A range of steps; it resumes from a checkpoint unless it begins at 0."""

    parallel: Parallel
    directory: str
    """Directory of checkpoints; if it is empty, nothing is loaded."""
    first: int
    last: int


class SaveTimes:
    """Keeps time and size of the last checkpoint that is whole."""

    def __init__(self) -> None:
        self.times: dict[str, Any] = {}

    def flush(self) -> None:
        """Do nothing: there is no journal."""

    def write(self, _kind: str, fields: dict[str, Any]) -> None:
        """Keep time and size of a `checkpoint` line."""
        self.times = {"save_s": fields["save_time_s"], "bytes": fields["bytes"]}


def parts(given: argparse.Namespace, wanted: Sequence[Part]) -> list[dict[str, Any]]:
    """Take the steps of the parts on this rank, one part after the other; return the result of each."""
    topology = Topology.from_env()
    with topology.process_group(PROCESS_GROUP_TIMEOUT):
        return [take(given, part, topology) for part in wanted]


def take(given: argparse.Namespace, part: Part, topology: Topology) -> dict[str, Any]:
    """Take the steps of a part; every rank must call this.

    The learning rate is high from the first step on, so that all steps matter. A part that begins at 0 saves at its
    half and continues, so its later losses are those of an uninterrupted run.
    """
    config = TrainConfig(
        model=given.model,
        parallel=part.parallel,
        global_batch_size=given.batch_size,
        micro_batch_size=given.batch_size,
        precision=given.precision,
        dropout=0.0,
        warmup_ratio=0.0,
        compile=False,
        cuda_graphs=False,
        kernels=False,
    )
    result: dict[str, Any] = {}
    with ExitStack() as stack:
        off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        loop = Loop(config, Data.of(given).features(), topology, given.model, stack, **off)
        train_step, record = loop.train_step, SaveTimes()
        checkpointer = Checkpointer(Path(part.directory), topology, app_state_of(train_step), keep=9, record=record)
        stack.callback(checkpointer.close)
        train_step.prime(part.first)
        loop.skip(part.first)
        began = time.perf_counter()
        if (found := checkpointer.newest_whole()) is not None:
            checkpointer.restore(*found)
            result["restore_s"] = time.perf_counter() - began
        for step in range(part.first, part.last):
            if not part.first and step == part.last // 2:
                checkpointer.start(step, "interval")
            loop.step()
        loop.read_all()
        checkpointer.finish()
        result.update(record.times)
        result["losses"] = loop.losses
    return result


def on_ranks(world_size: int, given: argparse.Namespace, wanted: Sequence[Part]) -> list[dict[str, Any]]:
    """Run the parts on new ranks and return the results of rank 0."""
    launch = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=world_size,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        monitor_interval=0.1,
        start_method="spawn",
    )
    result: list[dict[str, Any]] = elastic_launch(launch, parts)(given, wanted)[0]
    return result


def main() -> int:
    """Save with each strategy, resume with each; return 1 if a loss differs by more than the tolerance."""
    options = parser(__doc__ or "")
    options.add_argument("--model", default="bert-base")
    options.add_argument("--batch-size", type=int, default=24, help="features of a step over all ranks")
    options.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    options.add_argument("--steps", type=int, default=20, help="number of steps; the checkpoint is at their half")
    options.add_argument("--tolerance", type=float, default=1e-3)
    options.add_argument("--most-ranks", type=int, default=2)
    given = options.parse_args()
    Data.of(given).features()
    half, last = given.steps // 2, given.steps
    sizes = range(1, given.most_ranks + 1)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        directories = {(parallel, size): f"{folder}/{parallel}-{size}" for size in sizes for parallel in STRATEGIES}
        uninterrupted: dict[tuple[Parallel, int], dict[str, Any]] = {}
        for size in sizes:
            results = on_ranks(
                size, given, [Part(parallel, directories[parallel, size], 0, last) for parallel in STRATEGIES]
            )
            uninterrupted |= {(parallel, size): each for parallel, each in zip(STRATEGIES, results, strict=True)}
        (fresh,) = on_ranks(1, given, [Part("ddp", f"{folder}/none", half, last)])
        for size in sizes:
            pairs = list(itertools.product(directories, STRATEGIES))
            resumed = on_ranks(size, given, [Part(after, directories[saved], half, last) for saved, after in pairs])
            for (saved, after), each in zip(pairs, resumed, strict=True):
                rows.append(row_of(given, saved, uninterrupted[saved], (after, size), each, fresh))
                write(given.results, rows)
                print(line_of(rows[-1]), flush=True)
    return int(max(row["largest_difference"] for row in rows) > given.tolerance)


def row_of(
    given: argparse.Namespace,
    saved: tuple[Parallel, int],
    whole: dict[str, Any],
    restored: tuple[Parallel, int],
    resumed: dict[str, Any],
    fresh: dict[str, Any],
) -> dict[str, Any]:
    """Return the result of one resume, compared with the uninterrupted run and with a run that loaded nothing."""
    expected = whole["losses"][given.steps // 2 :]
    return {
        "what": "resize",
        "saved_by": f"{saved[0]} x {saved[1]}",
        "restored_by": f"{restored[0]} x {restored[1]}",
        "model": model_name(given.model),
        "precision": given.precision,
        "world_size": restored[1],
        "global_batch_size": given.batch_size,
        "largest_difference": max(abs(a - b) for a, b in zip(resumed["losses"], expected, strict=True)),
        "least_difference_unrestored": min(abs(a - b) for a, b in zip(fresh["losses"], expected, strict=True)),
        "losses": expected,
        "losses_resumed": resumed["losses"],
        "save_time_s": whole["save_s"],
        "restore_time_s": resumed["restore_s"],
        "bytes": whole["bytes"],
        **facts(),
    }


def line_of(row: dict[str, Any]) -> str:
    """Return a measurement as a line for the terminal."""
    return (
        f"{row['saved_by']} -> {row['restored_by']}: largest difference of a loss {row['largest_difference']:.2e}, "
        f"last {row['losses_resumed'][-1]:.5f} for {row['losses'][-1]:.5f}; save {row['save_time_s']:.2f} s, restore "
        f"{row['restore_time_s']:.2f} s, {row['bytes'] / 2**20:.0f} MiB"
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
