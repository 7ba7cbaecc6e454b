"""How long a save blocks the steps, and how much time saves at an interval add; one process, or under torchrun.

To find what slows down the steps during a save, parts of a save can be left out (`--leave-out`): writing, hashing, or
excluding long-lived objects from garbage collection (settle).
"""

import gc
import statistics
import tempfile
import time
from collections.abc import Collection
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.support.setup import Data, facts, model_name, parser, synchronize, write
from benchmarks.training.elasticqa_loop import Loop, add_loop_options, config_of_options
from elasticqa.checkpoint import async_writer
from elasticqa.checkpoint.checkpointer import Checkpointer
from elasticqa.distributed.topology import Topology
from elasticqa.training import trainer
from elasticqa.training.app_state import app_state_of
from elasticqa.training.train_step import TrainStep

PARTS = ("write", "hash", "settle")


def leave_out(parts: Collection[str]) -> None:
    """Leave out parts of all saves; the files are then no valid checkpoint."""
    if "write" in parts:
        async_writer.AsyncWriter._write_share = lambda *_: None  # type: ignore[method-assign]
    if "hash" in parts:
        async_writer.describe = lambda path, pattern: {  # type: ignore[attr-defined]
            file.name: (file.stat().st_size, "0" * 64) for file in path.glob(pattern)
        }
    if "settle" in parts:
        trainer.settle = lambda: None


class CollectionTimer:
    """Sums the time of full garbage collections, during which no thread of this process runs Python."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0
        gc.callbacks.append(self._note)

    def _note(self, phase: str, facts: dict[str, int]) -> None:
        if facts["generation"] < 2:
            return
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self.seconds += time.perf_counter() - self._began


class Saver:
    """Saves the state of a train step and keeps the times of each save."""

    def __init__(self, directory: Path, topology: Topology, train_step: TrainStep) -> None:
        self._checkpointer = Checkpointer(directory, topology, app_state_of(train_step), keep=2, record=self)
        self._number = 0
        self.stalls_s: list[float] = []
        self.saves_s: list[float] = []
        self.num_bytes = 0

    def prepare(self) -> None:
        """Prepare saves as the trainer does in its first step."""
        self._checkpointer.prepare()
        trainer.settle()

    def start(self) -> None:
        """Start a save as the trainer does, once all steps so far are computed."""
        synchronize()
        self._number += 1
        began = time.perf_counter()
        self._checkpointer.start(self._number, "interval")
        self.stalls_s.append(time.perf_counter() - began)

    def finish(self) -> None:
        """Wait for the save in progress."""
        self._checkpointer.finish()

    def flush(self) -> None:
        """Do nothing: there is no journal."""

    def write(self, _kind: str, fields: dict[str, Any]) -> None:
        """Keep time and size of a committed checkpoint."""
        self.saves_s.append(fields["save_time_s"])
        self.num_bytes = fields["bytes"]

    def close(self) -> None:
        """Wait for the save in progress."""
        self._checkpointer.close()


def seconds(loop: Loop, num_steps: int, saver: Saver | None) -> float:
    """Return the time of a number of steps; with a saver, a save starts with them."""
    synchronize()
    began = time.perf_counter()
    if saver is not None:
        saver.start()
    for _ in range(num_steps):
        loop.step()
    synchronize()
    if saver is not None:
        saver.finish()
    return time.perf_counter() - began


def measure(loop: Loop, saver: Saver, *, num_saves: int, every: int, window: int) -> dict[str, Any]:
    """Return the cost of saves; every rank must call this.

    Args:
        loop: warmed up.
        saver: of the loop's train step.
        num_saves: number of windows with a save; each is compared with a window without one.
        every: steps between two saves, for ``inflation_percent``.
        window: steps of a window; the time waiting for the rest of a save after them is included.
    """
    loop.step()
    saver.prepare()
    seconds(loop, window, saver)
    collections = CollectionTimer()
    plain: list[float] = []
    with_save: list[float] = []
    for _ in range(num_saves):
        plain.append(seconds(loop, window, None))
        with_save.append(seconds(loop, window, saver))
    stalls = sorted(saver.stalls_s)
    extra_s = [one - other for one, other in zip(with_save, plain, strict=True)]
    return {
        "stall_p50_ms": 1e3 * statistics.median(stalls),
        "stall_p95_ms": 1e3 * stalls[min(len(stalls) - 1, int(0.95 * len(stalls)))],
        "stall_max_ms": 1e3 * stalls[-1],
        "stalls_ms": [1e3 * stall for stall in saver.stalls_s],
        "save_time_s": saver.saves_s,
        "bytes": saver.num_bytes,
        "every": every,
        "window": window,
        "seconds_without": plain,
        "seconds_with": with_save,
        "collections_s": collections.seconds,
        "inflation_percent": 100 * statistics.median(extra_s) / (every * statistics.median(plain) / window),
    }


def main() -> None:
    """Measure and write the result."""
    options = parser(__doc__ or "")
    add_loop_options(options)
    options.add_argument("--saves", type=int, default=20)
    options.add_argument("--every", type=int, default=1000, help="steps between two saves")
    options.add_argument("--window", type=int, default=700, help="steps that are timed with and without a save")
    options.add_argument("--leave-out", nargs="+", default=[], choices=PARTS, help="parts of a save to leave out")
    options.add_argument("--directory", type=Path, help="to save in; default: the directory of temporary files")
    given = options.parse_args()
    leave_out(given.leave_out)
    topology = Topology.from_env()
    config = config_of_options(given, topology)
    with topology.process_group(timedelta(minutes=5)), ExitStack() as stack:
        loop = Loop(config, Data.of(given).features(), topology, given.model, stack)
        loop.warm_up()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=given.directory)))
        folder = topology.broadcast(folder)
        saver = Saver(folder, topology, loop.train_step)
        stack.callback(saver.close)
        found = measure(loop, saver, num_saves=given.saves, every=given.every, window=given.window)
        if topology.is_main:
            row = {"what": "stall", "parallel": given.parallel, "model": model_name(given.model)}
            row["left_out"] = given.leave_out
            row |= {"world_size": topology.world_size, "global_batch_size": given.batch_size, **found, **facts()}
            write(given.results, [row])
            print(
                f"{given.parallel} x {topology.world_size}: blocked p50 {row['stall_p50_ms']:.1f} ms, p95 "
                f"{row['stall_p95_ms']:.1f} ms, max {row['stall_max_ms']:.1f} ms; whole save "
                f"{statistics.median(row['save_time_s']):.2f} s, {row['bytes'] / 2**20:.0f} MiB; every {given.every} "
                f"steps +{row['inflation_percent']:.2f}%",
                flush=True,
            )
        topology.barrier()


if __name__ == "__main__":
    main()
