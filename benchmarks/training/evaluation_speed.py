"""Features per second of an evaluation: forward passes, answers, EM and F1, writing predictions."""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn
from transformers import AutoTokenizer

from benchmarks.support.setup import (
    DOC_STRIDE,
    MAX_LENGTH,
    bert_config,
    build_model,
    facts,
    model_name,
    parser,
    write,
)
from elasticqa.config.train_config import TrainConfig
from elasticqa.data.squad.cache import FeatureRequest, load_or_build
from elasticqa.data.squad.features import Windowing
from elasticqa.data.squad.read import read_squad
from elasticqa.distributed.topology import Topology, resolve_precision
from elasticqa.models.attention import PACKED
from elasticqa.models.parallelize import parallelize
from elasticqa.models.question_answering import ModelSpec, QuestionAnswerer
from elasticqa.training.evaluation import Evaluator, spans_of_share


@dataclass(frozen=True)
class _Times:
    whole: list[float]
    forward_and_spans: list[float]


def main() -> None:
    """Evaluate once for warm-up, then several times."""
    options = parser(__doc__ or "")
    options.add_argument("--dev", type=Path, required=True, help="dev-v1.1.json or .json.gz")
    options.add_argument("--model", default="bert-base", help="tiny, bert-base, bert-large or a directory")
    options.add_argument("--repeats", type=int, default=5)
    given = options.parse_args()
    topology = Topology.from_env({})
    precision = resolve_precision("auto", topology.device)
    request = FeatureRequest(given.dev, for_training=False, windowing=Windowing(MAX_LENGTH, DOC_STRIDE))
    tokenizer = AutoTokenizer.from_pretrained(given.tokenizer)
    features = load_or_build(request, tokenizer, given.cache / "features").features
    spec = ModelSpec.of(bert_config(given.model), "auto")
    with tempfile.TemporaryDirectory() as folder:
        bare = build_model(given.model, 0, attn_implementation=PACKED)
        evaluator = Evaluator(
            features=features,
            examples=read_squad(given.dev, for_training=False).examples,
            topology=topology,
            precision=precision,
            max_answer_length=TrainConfig().max_answer_length,
            run_directory=Path(folder),
            attempt=1,
        )
        model = parallelize(QuestionAnswerer(bare, spec), "none", topology, precision)
        times = measure(evaluator, model, given.repeats)
    measurement: dict[str, Any] = {
        "variant": "elasticqa",
        "what": "evaluation",
        "model": model_name(given.model),
        "precision": precision,
        "world_size": 1,
        "num_features": len(features),
        "num_examples": len(evaluator.examples),
        "eval_features_per_s": [round(len(features) / seconds, 1) for seconds in times.whole],
        "eval_time_s": [round(seconds, 3) for seconds in times.whole],
        "spans_time_s": [round(seconds, 3) for seconds in times.forward_and_spans],
        **facts(),
    }
    write(given.results, [measurement])
    print(
        f"{len(features)} features in {median(times.whole):.2f} s: {len(features) / median(times.whole):,.0f} "
        f"features/s; forward passes and spans alone {median(times.forward_and_spans):.2f} s"
    )


def measure(evaluator: Evaluator, model: nn.Module, repeats: int) -> _Times:
    """Return the seconds of whole evaluations, and of forward passes and spans alone, measured in turns."""
    evaluator(model, 0)
    whole, forward = [], []
    for _ in range(repeats):
        evaluation = evaluator(model, 0)
        assert evaluation is not None
        whole.append(evaluation.eval_time_s)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        began = time.perf_counter()
        spans_of_share(model, evaluator.features, evaluator.topology, evaluator.precision, evaluator.max_answer_length)
        forward.append(time.perf_counter() - began)
    return _Times(whole, forward)


if __name__ == "__main__":
    main()
