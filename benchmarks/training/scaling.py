"""Features per second on several GPUs with DDP and FSDP, and of the same trainers on one GPU.

Weak scaling: same features per GPU. Strong scaling: same global batch.
"""

from typing import Any

from benchmarks.support.setup import Data, parser, write
from benchmarks.tables.training import SINGLE
from benchmarks.training.interleaved import Case, Pace, measure, summary

DEFAULT = ("elasticqa_ddp", "elasticqa_fsdp", "hf_ddp", "lightning_ddp", "lightning_fsdp")


def cases_of(data: Data, model: str, variants: list[str], *, world_size: int, weak: int, strong: int) -> list[Case]:
    """Return the variants on one and on all GPUs, without duplicates.

    Args:
        data: of all cases.
        model: of all cases.
        variants: on several GPUs.
        world_size: number of GPUs.
        weak: features per GPU; 0: no weak scaling.
        strong: features of the global batch; 0: no strong scaling.
    """
    singles = list(dict.fromkeys(SINGLE[variant.partition("_")[0]] for variant in variants))
    sizes = [(size, size * factor) for size, factor in ((weak, world_size), (strong, 1)) if size]
    cases = []
    for alone, together in sizes:
        cases += [Case(name, model, alone, data) for name in singles]
        cases += [Case(name, model, together, data, world_size) for name in variants]
    return list(dict.fromkeys(cases))


def main() -> None:
    """Measure the requested variants; write the results after each repeat."""
    options = parser(__doc__ or "")
    options.add_argument("--model", default="bert-base", help="tiny, bert-base, bert-large or a directory")
    options.add_argument("--gpus", type=int, default=2)
    options.add_argument("--weak", type=int, default=24, help="features per GPU; 0: not measured")
    options.add_argument("--strong", type=int, default=96, help="features of the global batch; 0: not measured")
    options.add_argument("--variants", nargs="+", default=DEFAULT)
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--seconds", type=float, default=1.2, help="minimum of a repeat; 0: one step")
    options.add_argument("--ready-within", type=float, default=120, help="seconds until all must have warmed up")
    given = options.parse_args()
    data = Data.of(given)
    data.features()
    cases = cases_of(data, given.model, given.variants, world_size=given.gpus, weak=given.weak, strong=given.strong)
    results: list[dict[str, Any]] = measure(
        cases, Pace(given.repeats, given.seconds, given.ready_within), given.results
    )
    write(given.results, results)
    print(summary(results))


if __name__ == "__main__":
    main()
