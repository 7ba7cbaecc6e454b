"""Time of a training step, and of its parts under the profiler; one process, or under torchrun.

To measure the cost of reducing gradients, DDP steps can use DDP's own reducer, none, or other bucket sizes. The result
includes all NCCL_* variables.
"""

import os
import statistics
import tempfile
import time
from contextlib import AbstractContextManager, ExitStack, nullcontext
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from benchmarks.support.setup import Data, facts, model_name, parser, synchronize, write
from benchmarks.training.elasticqa_loop import Loop, add_loop_options, config_of_options
from elasticqa.distributed.topology import Topology
from elasticqa.models import parallelize
from elasticqa.profiling.step_profiler import StepProfiler
from elasticqa.training import graph_step
from elasticqa.training.reducer import GradientReducer

KERNELS_KEPT = 12
MOST_STEPS = 112
"""Number of steps of a profile: not profiled, warm-up and recorded."""


class NoReducer:
    """Replaces our reducer, so that a step is only its computation."""

    def __init__(self, _: list[nn.Parameter]) -> None:
        """Take the parameters and ignore them."""

    def during_backward(self) -> AbstractContextManager[None]:
        """Reduce nothing."""
        return nullcontext()


def replace_reducer(kind: str, bucket_mib: float | None) -> None:
    """Change how captured DDP steps reduce gradients."""
    if kind != "ours":
        graph_step.GradientReducer = NoReducer  # type: ignore[assignment,attr-defined]
    if kind == "ddp":

        def always(model: nn.Module, is_synced: bool) -> None:
            del is_synced
            parallelize.set_gradient_sync(model, is_synced=True)

        graph_step.set_gradient_sync = always  # type: ignore[attr-defined]
    if bucket_mib is not None:
        size = round(bucket_mib * 2**20)
        graph_step.GradientReducer = partial(GradientReducer, bucket_bytes=size)  # type: ignore[assignment,attr-defined]


def step_ms(loop: Loop, num_steps: int) -> float:
    """Return the mean milliseconds of a step; every rank must call this."""
    synchronize()
    began = time.perf_counter()
    for _ in range(num_steps):
        loop.step()
    synchronize()
    return 1e3 * (time.perf_counter() - began) / num_steps


def profiled(loop: Loop, topology: Topology, num_steps: int) -> dict[str, Any] | None:
    """Return the summary of the trace on the main rank; the other ranks only take the steps."""
    with tempfile.TemporaryDirectory() as folder:
        profiler = StepProfiler(
            Path(folder), attempt=1, rank=topology.rank, step=0, num_steps=num_steps, device_type=topology.device.type
        )
        line = None
        if topology.is_main:
            profiler.start()
        for _ in range(profiler.schedule.num_steps):
            loop.step()
            if topology.is_main:
                line = profiler.step()
    if line is None:
        return None
    summary: dict[str, Any] = line["summary"]
    return {"num_steps": profiler.schedule.active, **summary}


def parts(summary: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of a step in milliseconds: kernels of the GPU, or operators of the host on a CPU."""
    scale = 1e-3 / summary["num_steps"]
    devices = summary["devices"]
    of_device = summary["kernel_categories"] if devices else summary["operator_categories"]
    ranking = summary["kernels"] if devices else summary["operators"]
    time_of = "total_us" if devices else "self_us"
    result: dict[str, Any] = {
        "categories_ms": {row["category"]: row["time_us"] * scale for row in of_device},
        "top": [
            {"name": row["name"], "ms": row[time_of] * scale, "calls": row["count"] / summary["num_steps"]}
            for row in ranking[:KERNELS_KEPT]
        ],
    }
    if devices:
        device = devices[0]
        names = ("busy", "compute", "communication", "exposed_communication", "idle", "host_bound")
        result |= {f"{name}_ms": device[f"{name}_us"] * scale for name in names}
        result["num_kernels"] = device["num_kernels"] / summary["num_steps"]
    return result


def main() -> None:
    """Measure, write the result and print it."""
    options = parser(__doc__ or "")
    add_loop_options(options)
    options.add_argument("--steps", type=int, default=150, help="steps of each of three repeats")
    options.add_argument("--profiled-steps", type=int, default=MOST_STEPS)
    options.add_argument("--compile", action="store_true", help="compile layers in place of our kernels")
    options.add_argument(
        "--exchange", choices=("ours", "ddp", "none"), default="ours", help="none: weights of the ranks diverge"
    )
    options.add_argument("--bucket-mib", type=float, help="bucket size of our reducer")
    given = options.parse_args()
    topology = Topology.from_env()
    config = config_of_options(given, topology, kernels=False if given.compile else None)
    replace_reducer(given.exchange, given.bucket_mib)
    with topology.process_group(timedelta(minutes=5)), ExitStack() as stack:
        loop = Loop(config, Data.of(given).features(), topology, given.model, stack)
        loop.warm_up()
        loop.data_time_s = 0.0
        times = [step_ms(loop, given.steps) for _ in range(3)]
        wait_ms = 1e3 * loop.data_time_s / (3 * given.steps)
        summary = profiled(loop, topology, given.profiled_steps)
        if summary is not None:
            row = {"what": "parts", "parallel": given.parallel, "model": model_name(given.model)}
            row |= {"world_size": topology.world_size, "global_batch_size": given.batch_size}
            row |= {"exchange": given.exchange, "bucket_mib": given.bucket_mib}
            row |= {"is_compiled": given.compile, "data_wait_ms": wait_ms}
            row |= {"nccl": {name: value for name, value in os.environ.items() if name.startswith("NCCL_")}}
            row |= {"step_ms": times, **parts(summary), **facts()}
            write(given.results, [row])
            shown = ", ".join(f"{name} {ms:.2f}" for name, ms in row["categories_ms"].items())
            print(f"{given.parallel} x {topology.world_size}: {statistics.median(times):.2f} ms a step; {shown}")
            for kernel in row["top"]:
                print(f"  {kernel['ms']:8.3f} ms {kernel['calls']:7.1f} x {kernel['name'][:100]}")
            for name in ("busy", "communication", "exposed_communication", "idle", "host_bound"):
                if f"{name}_ms" in row:
                    print(f"  {name} {row[f'{name}_ms']:.2f} ms", flush=True)
        topology.barrier()


if __name__ == "__main__":
    main()
