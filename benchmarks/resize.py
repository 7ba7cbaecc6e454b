"""A checkpoint goes on at another world size and under the other strategy: losses, times and bytes.

One process starts the ranks of each part itself. Dropout is off, or the losses of other world sizes could not be equal.
"""

import argparse
import itertools
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from benchmarks.ours import Loop
from benchmarks.setting import Data, facts, model_name, parser, write
from elasticqa.checkpoint import Checkpointer
from elasticqa.config import TrainConfig
from elasticqa.manifest import Manifest
from elasticqa.topology import Topology
from elasticqa.train import PROCESS_GROUP_TIMEOUT

WORLDS = (("ddp", 1), ("ddp", 2), ("fsdp", 2), ("fsdp", 1))
"""Strategies and numbers of ranks; a checkpoint of each goes on under each."""


def part(given: argparse.Namespace, parallel: str, directory: str, first: int, last: int) -> dict[str, Any]:
    """Take the steps from ``first`` to ``last`` on this rank, going on from the directory's checkpoint if first > 0.

    A part that begins at 0 saves after its half and goes on, so its later losses are those of an uninterrupted run.
    """
    topology = Topology.from_env()
    config = TrainConfig(
        model=given.model,
        parallel=parallel,  # type: ignore[arg-type]
        global_batch_size=given.batch_size,
        micro_batch_size=given.batch_size,
        precision=given.precision,
        dropout=0.0,
        compile=False,
        cuda_graphs=False,
        kernels=False,
    )
    told: dict[str, Any] = {}
    with topology.process_group(PROCESS_GROUP_TIMEOUT), ExitStack() as stack:
        off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        loop = Loop(config, Data.of(given).features(), topology, given.model, stack, **off)
        checkpointer = Checkpointer(Path(directory), topology, keep=9)
        stack.callback(checkpointer.close)
        engine = loop.engine
        extra = {"updater": engine.updater.state_dict()}
        engine.prime(first)
        if first:
            began = time.perf_counter()
            found = checkpointer.newest_whole()
            assert found is not None
            checkpointer.restore(found[0], engine.model, engine.optimizer, extra)
            told["restore_s"] = time.perf_counter() - began
            loop.skip(first)
        for step in range(first, last):
            if not first and step == last // 2:
                checkpointer.start(
                    Manifest(step, {}, {}),
                    engine.model,
                    engine.optimizer,
                    extra,
                    lambda done: told.update(save_s=done.save_time_s, bytes=done.manifest.num_bytes),
                )
            loop.step()
        loop.read_all()
        checkpointer.finish()
        told["losses"] = loop.losses
    return told


def on_ranks(world_size: int, *arguments: Any) -> dict[str, Any]:
    """Return what ``part`` told on rank 0 of new processes."""
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
    result: dict[str, Any] = elastic_launch(launch, part)(*arguments)[0]
    return result


def main() -> int:
    """Save under each, go on under each, and return 1 if a loss differs by more than the tolerance."""
    options = parser(__doc__ or "")
    options.add_argument("--model", default="bert-base")
    options.add_argument("--batch-size", type=int, default=24, help="features of a step over all ranks")
    options.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    options.add_argument("--steps", type=int, default=20, help="half of them before the checkpoint")
    options.add_argument("--tolerance", type=float, default=1e-3)
    options.add_argument("--most-ranks", type=int, default=2)
    given = options.parse_args()
    Data.of(given).features()
    worlds = [(parallel, size) for parallel, size in WORLDS if size <= given.most_ranks]
    with tempfile.TemporaryDirectory() as folder:
        wholes = {
            (parallel, size): on_ranks(size, given, parallel, f"{folder}/{parallel}-{size}", 0, given.steps)
            for parallel, size in worlds
        }
        rows: list[dict[str, Any]] = []
        for (before, saved_by), (after, restored_by) in itertools.product(worlds, worlds):
            whole = wholes[before, saved_by]
            directory = f"{folder}/{before}-{saved_by}"
            resumed = on_ranks(restored_by, given, after, directory, given.steps // 2, given.steps)
            expected = whole["losses"][given.steps // 2 :]
            largest = max(abs(one - other) for one, other in zip(resumed["losses"], expected, strict=True))
            row = {
                "what": "resize",
                "saved_by": f"{before} x {saved_by}",
                "restored_by": f"{after} x {restored_by}",
                "model": model_name(given.model),
                "precision": given.precision,
                "world_size": restored_by,
                "global_batch_size": given.batch_size,
                "largest_difference": largest,
                "losses": expected,
                "losses_resumed": resumed["losses"],
                "save_time_s": whole["save_s"],
                "restore_time_s": resumed["restore_s"],
                "bytes": whole["bytes"],
                **facts(),
            }
            rows.append(row)
            write(given.results, rows)
            print(
                f"{before} x {saved_by} -> {after} x {restored_by}: largest difference of a loss {largest:.2e}, last "
                f"{resumed['losses'][-1]:.5f} for {expected[-1]:.5f}; save {whole['save_s']:.2f} s, restore "
                f"{resumed['restore_s']:.2f} s, {whole['bytes'] / 2**20:.0f} MiB",
                flush=True,
            )
    return int(max(row["largest_difference"] for row in rows) > given.tolerance)


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
