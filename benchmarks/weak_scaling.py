"""Features per second of elasticqa with equally many features a GPU, on the GPUs that torchrun started."""

import json
import shlex
import sys
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any, Literal

import torch

from benchmarks.setting import Ours, card, parser, squad_features
from elasticqa.config import TrainConfig
from elasticqa.topology import Topology


def config_of(parallel: Literal["ddp", "fsdp"], per_gpu: int, world_size: int) -> TrainConfig:
    """Return the config of a measurement; the largest share may have some features more than the mean."""
    return TrainConfig(
        parallel=parallel,
        precision="bf16",
        global_batch_size=per_gpu * world_size,
        micro_batch_size=2 * per_gpu,
        learning_rate=4e-5,
        epochs=2,
        compile=True,
    )


def main() -> None:
    """Measure DDP, and FSDP where there is more than one GPU; rank 0 adds to the results."""
    options = parser(__doc__ or "")
    options.add_argument("--per-gpu", type=int, nargs="+", default=[24, 96])
    options.add_argument("--strategies", nargs="+", default=["ddp", "fsdp"])
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--steps", type=int, default=100)
    given = options.parse_args()
    topology = Topology.from_env()
    results: list[dict[str, Any]] = []
    with topology.process_group(timedelta(minutes=5)):
        features = squad_features(given.squad, given.tokenizer, given.cache)
        for per_gpu in given.per_gpu:
            for parallel in given.strategies:
                config = config_of(parallel, per_gpu, topology.world_size)
                runner = Ours(config, features, topology)
                runner.warm_up(30, given.repeats * given.steps)
                rates = [runner.run(given.steps) for _ in range(given.repeats)]
                runner.close()
                results.append(
                    {
                        "variant": f"elasticqa_{parallel}",
                        "model": "bert-base",
                        "global_batch_size": config.global_batch_size,
                        "world_size": topology.world_size,
                        "card": card(),
                        "torch": torch.__version__,
                        "features_per_s": rates,
                        "peak_memory_bytes": runner.peak.most_bytes,
                        "date": datetime.now(UTC).date().isoformat(),
                        "command": shlex.join(["torchrun", "-m", "benchmarks.weak_scaling", *sys.argv[1:]]),
                    }
                )
                if topology.is_main:
                    print(f"{parallel} {topology.world_size} x {per_gpu}: {median(rates):.1f} features/s", flush=True)
    if topology.is_main:
        earlier = json.loads(given.results.read_text()) if given.results.exists() else []
        given.results.write_text(json.dumps([*earlier, *results], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
