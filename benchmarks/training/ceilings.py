"""Limits of a GPU and what a step of BERT needs: copies, matrix products, collectives between GPUs.

One process, or under torchrun for the collectives. It also runs on a CPU, to test the script.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.support.setup import bert_config, facts, synchronize, write
from elasticqa.distributed.topology import Topology

MIB = 1 << 20
REPEATS = 5
ADAMW_BYTES = 28
"""Bytes per weight in fp32: weight, gradient and two moments are read; all but the gradient are written."""
HALF_WEIGHT_BYTES = 6
"""Bytes per encoder weight before each forward pass: read in fp32, written in bf16."""


def seconds(work: Callable[[], Any], num_calls: int) -> float:
    """Return the median time of one call."""
    work()
    found = []
    for _ in range(REPEATS):
        synchronize()
        began = time.perf_counter()
        for _ in range(num_calls):
            work()
        synchronize()
        found.append((time.perf_counter() - began) / num_calls)
    return statistics.median(found)


def copies(device: torch.device, num_mib: int) -> dict[str, float]:
    """Return GB/s within the device, counting reads and writes, and from and to pinned host memory."""
    source = torch.zeros(num_mib * MIB // 4, device=device)
    target = torch.empty_like(source)
    result = {"copy, read and written": 2 * source.nbytes / seconds(lambda: target.copy_(source), 10) / 1e9}
    if device.type == "cuda":
        host = torch.empty(source.shape, pin_memory=True)
        result["to the host"] = source.nbytes / seconds(lambda: host.copy_(source, non_blocking=True), 3) / 1e9
        result["from the host"] = source.nbytes / seconds(lambda: target.copy_(host, non_blocking=True), 3) / 1e9
    return result


def products(device: torch.device, rows: int, hidden: int, inner: int) -> dict[str, float]:
    """Return TFLOP/s in bf16 of the products of a layer's forward pass, by shape."""
    result = {}
    for size_in, size_out in ((hidden, 3 * hidden), (hidden, hidden), (hidden, inner), (inner, hidden)):
        values = torch.randn(rows, size_in, device=device, dtype=torch.bfloat16)
        weight = torch.randn(size_out, size_in, device=device, dtype=torch.bfloat16)
        time_s = seconds(lambda values=values, weight=weight: values @ weight.t(), 20)  # type: ignore[misc]
        result[f"{rows:,} x {size_in} x {size_out}"] = 2 * rows * size_in * size_out / time_s / 1e12
    return result


def exchanges(device: torch.device, sizes_mib: list[int]) -> dict[str, float]:
    """Return GB/s that each GPU sends in collectives of the given MiB of fp32; every rank must call this.

    Counts the minimum that a ring sends: 2(n-1)/n of the bytes in an all-reduce, (n-1)/n in the others.
    """
    world_size = dist.get_world_size()
    part = (world_size - 1) / world_size
    result = {}
    for size in sizes_mib:
        whole = torch.zeros(size * MIB // 4 // world_size * world_size, device=device)
        share = torch.zeros(len(whole) // world_size, device=device)
        kinds: dict[str, tuple[float, Callable[[], Any]]] = {
            "all-reduce": (2 * part, lambda whole=whole: dist.all_reduce(whole)),  # type: ignore[misc]
            "reduce-scatter": (part, lambda whole=whole, share=share: dist.reduce_scatter_tensor(share, whole)),  # type: ignore[misc]
            "all-gather": (part, lambda whole=whole, share=share: dist.all_gather_into_tensor(whole, share)),  # type: ignore[misc]
        }
        for kind, (sent, work) in kinds.items():
            if device.type == "cpu" and kind != "all-reduce":
                continue
            result[f"{kind}, {size} MiB"] = sent * whole.nbytes / seconds(work, 5) / 1e9
    return result


def needs(model: str, tokens: int) -> dict[str, float]:
    """Return the computed floating-point operations and bytes of one training step.

    Bytes of activations are left out: at best, computation hides them.
    """
    config = bert_config(model)
    per_layer = 4 * config.hidden_size**2 + 2 * config.hidden_size * config.intermediate_size
    encoder = config.num_hidden_layers * per_layer
    embeddings = (config.vocab_size + config.max_position_embeddings) * config.hidden_size
    return {
        "operations": 6.0 * encoder * tokens,
        "bytes": float(ADAMW_BYTES * (encoder + embeddings) + HALF_WEIGHT_BYTES * encoder),
        "gradient_bytes": 4.0 * (encoder + embeddings),
    }


def main() -> None:
    """Measure, write and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--model", default="bert-base")
    options.add_argument("--tokens", type=int, default=4096, help="of a step; 24 features of SQuAD have about 4,100")
    options.add_argument("--mib", type=int, default=512, help="size of a copy")
    options.add_argument("--exchange-mib", type=int, nargs="+", default=[25, 100, 420])
    options.add_argument("--results", type=Path, required=True, help="file to write, JSON")
    given = options.parse_args()
    topology = Topology.from_env()
    config = bert_config(given.model)
    with topology.process_group(timedelta(minutes=5)):
        device = topology.device
        row: dict[str, Any] = {"what": "ceiling", "model": given.model, "world_size": topology.world_size}
        row["tokens"], row["needs"] = given.tokens, needs(given.model, given.tokens)
        row["copies_gb_per_s"] = copies(device, given.mib)
        row["products_tflop_per_s"] = products(device, given.tokens, config.hidden_size, config.intermediate_size)
        row["sent_gb_per_s"] = exchanges(device, given.exchange_mib) if topology.world_size > 1 else {}
        if topology.is_main:
            write(given.results, [row | facts()])
            for name in ("needs", "copies_gb_per_s", "products_tflop_per_s", "sent_gb_per_s"):
                print(f"{name}: " + ", ".join(f"{key} {value:,.4g}" for key, value in row[name].items()), flush=True)


if __name__ == "__main__":
    main()
