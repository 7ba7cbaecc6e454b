"""Features per second of training on one GPU: elasticqa, the Hugging Face Trainer and Lightning, in turns."""

from typing import Any

from benchmarks.support.setup import Data, parser, write
from benchmarks.training.interleaved import Case, Pace, measure, summary

DEFAULT = (
    "elasticqa",
    "elasticqa_compiled",
    "elasticqa_captured",
    "elasticqa_eager",
    "elasticqa_fp16_sdpa",
    "elasticqa_fp16_sdpa_captured",
    "elasticqa_fp16_sdpa_eager",
    "hf_fp32",
    "hf_tf32",
    "hf_bf16",
    "hf_bf16_compile",
    "hf_bf16_compile_graphs",
    "hf_bf16_grouped",
    "lightning_bf16",
)


def main() -> None:
    """Measure the requested variants; write the results after each repeat."""
    options = parser(__doc__ or "")
    options.add_argument("--model", default="bert-base", help="tiny, bert-base, bert-large or a directory")
    options.add_argument("--batch-sizes", type=int, nargs="+", default=[24, 96])
    options.add_argument("--variants", nargs="+", default=DEFAULT)
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--seconds", type=float, default=2.0, help="minimum of a repeat; 0: one step")
    options.add_argument("--warm-up", type=int, default=12, help="steps before the first repeat")
    options.add_argument("--ready-within", type=float, default=120, help="seconds in which all must warm up")
    given = options.parse_args()
    data = Data.of(given)
    # Built once, before all variants read them.
    data.features()
    pace = Pace(given.repeats, given.seconds, given.ready_within)
    results: list[dict[str, Any]] = []
    for size in given.batch_sizes:
        cases = [Case(name, given.model, size, data, warm_up_steps=given.warm_up) for name in given.variants]
        results += measure(cases, pace, given.results.with_suffix(f".{size}.json"))
        write(given.results, results)
        given.results.with_suffix(f".{size}.json").unlink(missing_ok=True)
        print(summary(results), flush=True)


if __name__ == "__main__":
    main()
