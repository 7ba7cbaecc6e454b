"""Features per second of training on one GPU: elasticqa and the Hugging Face Trainer, in turns in one process."""

import json
import shlex
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from statistics import median
from typing import Any

import torch

from benchmarks.peers import HfTrainer, Settings
from benchmarks.setting import Ours, card, parser, squad_features
from elasticqa.config import TrainConfig
from elasticqa.squad.features import Features
from elasticqa.topology import Topology

Runner = Ours | HfTrainer
OURS: dict[str, tuple[bool, bool, bool]] = {
    "elasticqa_eager": (False, False, False),
    "elasticqa_captured": (False, True, False),
    "elasticqa": (True, True, False),
    "elasticqa_kernels": (False, True, True),
}
"""Variant -> compiled layers, CUDA graphs, kernels of ours; `elasticqa` is what a user gets without a flag."""
PEERS = {
    "hf_bf16": Settings(),
    "hf_bf16_compile": Settings(is_compiled=True),
    "hf_bf16_grouped": Settings(is_grouped=True),
}
WARMUP_STEPS = 30


def ours(name: str, batch_size: int, features: Features, num_to_come: int) -> Ours:
    """Return a variant of elasticqa with all that it compiles and captures behind it."""
    is_compiled, is_captured, is_fused = OURS[name]
    config = TrainConfig(
        parallel="none",
        precision="bf16",
        global_batch_size=batch_size,
        micro_batch_size=batch_size,
        learning_rate=4e-5,
        epochs=2,
        compile=is_compiled,
        cuda_graphs=is_captured,
        kernels=is_fused,
    )
    runner = Ours(config, features, Topology.from_env({}))
    runner.warm_up(WARMUP_STEPS, num_to_come)
    return runner


def makers(features: Features, num_to_come: int) -> dict[str, Callable[[int], Runner]]:
    """Return how each variant is built for a batch size."""
    result: dict[str, Callable[[int], Runner]] = {}
    for name in OURS:
        result[name] = lambda size, name=name: ours(name, size, features, num_to_come)  # type: ignore[misc]
    for name, settings in PEERS.items():
        result[name] = lambda size, settings=settings: HfTrainer(settings, features, size)  # type: ignore[misc]
    return result


def _is_fast(name: str) -> bool:
    return name in OURS and OURS[name][1]


def main() -> None:
    """Measure all variants that were asked for, and write the results as they come."""
    options = parser(__doc__ or "")
    options.add_argument("--batch-sizes", type=int, nargs="+", default=[24, 96])
    options.add_argument("--variants", nargs="+", default=[*OURS, *PEERS])
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--steps", type=int, default=150, help="of each repeat with CUDA graphs")
    options.add_argument("--peer-steps", type=int, default=40, help="of each repeat without them")
    given = options.parse_args()
    features = squad_features(given.squad, given.tokenizer, given.cache)
    results: list[dict[str, Any]] = []
    for size in given.batch_sizes:
        built = {}
        for name, maker in makers(features, given.repeats * given.steps).items():
            if name in given.variants:
                began = time.perf_counter()
                built[name] = maker(size)
                print(f"{name} at {size}: built in {time.perf_counter() - began:.1f} s", flush=True)
        rates: dict[str, list[float]] = {name: [] for name in built}
        for _ in range(given.repeats):
            for name, runner in built.items():
                rates[name].append(runner.run(given.steps if _is_fast(name) else given.peer_steps))
        for name, runner in built.items():
            results.append(
                {
                    "variant": name,
                    "model": "bert-base",
                    "global_batch_size": size,
                    "world_size": 1,
                    "card": card(),
                    "torch": torch.__version__,
                    "features_per_s": rates[name],
                    "peak_memory_bytes": runner.peak.most_bytes,
                    "date": datetime.now(UTC).date().isoformat(),
                    "command": shlex.join(["python", "-m", "benchmarks.train_speed", *sys.argv[1:]]),
                }
            )
            print(f"{name:20} {size:4} {median(rates[name]):8.1f} features/s  {runner.peak.most_bytes / 2**30:.1f} GiB")
            if isinstance(runner, Ours):
                runner.close()
        given.results.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
