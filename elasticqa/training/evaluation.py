"""EM and F1 of a model: each rank evaluates its share of the features, and only spans are gathered."""

import json
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from elasticqa.config.train_config import Precision
from elasticqa.data.micro_batch import Indices, pack
from elasticqa.data.squad.answers import Prediction, Spans, best_spans, join_spans
from elasticqa.data.squad.features import Features
from elasticqa.data.squad.metric import Score, mean_metrics, squad_scores
from elasticqa.data.squad.read import Example
from elasticqa.distributed.topology import Topology
from elasticqa.run.metrics import Evaluation
from elasticqa.training.host_copy import HostCopies
from elasticqa.training.train_step import autocast

logger = logging.getLogger(__name__)

FEATURES_PER_BATCH = {"cpu": 64, "cuda": 256}
"""Device type -> features per forward pass; a GPU needs enough of them to be the bottleneck."""
AHEAD = 2
"""Forward passes queued on a GPU while the host searches the spans of an earlier one."""


@dataclass(frozen=True, kw_only=True)
class Evaluator:
    """Evaluates on the dev split; predictions are kept in the run directory."""

    features: Features
    examples: list[Example]
    topology: Topology
    precision: Precision
    max_answer_length: int
    run_directory: Path
    attempt: int

    def __call__(self, model: nn.Module, step: int) -> Evaluation | None:
        """Return the metrics on rank 0, None elsewhere; leaves evaluation mode on. Every rank must call this."""
        began = time.perf_counter()
        model.eval()
        parts = self.topology.gather(
            spans_of_share(model, self.features, self.topology, self.precision, self.max_answer_length)
        )
        if not self.topology.is_main:
            return None
        predictions = join_spans(self.features, Spans.concatenate(parts), self.examples)
        scores = squad_scores({p.id: p.text for p in predictions}, self.examples)
        metrics = mean_metrics(scores)
        path: str | None = f"predictions/attempt-{self.attempt:04d}-step-{step:08d}-dev.jsonl"
        try:
            self._write(self.run_directory / str(path), predictions, scores)
        except OSError as error:
            # Continue: the metrics are recorded anyway, and the other ranks wait for this one.
            logger.warning("predictions %s cannot be written: %s", path, error)
            path = None
        return Evaluation(
            step=step,
            split="dev",
            em=metrics.em,
            f1=metrics.f1,
            loss=None,
            num_examples=metrics.num_examples,
            num_features=len(self.features),
            eval_time_s=time.perf_counter() - began,
            predictions=path,
        )

    def _write(self, path: Path, predictions: list[Prediction], scores: list[Score]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8") as file:
            for example, prediction, score in zip(self.examples, predictions, scores, strict=True):
                line = {
                    "id": example.id,
                    "question": example.question,
                    "context": example.context,
                    "answers": [answer.text for answer in example.answers],
                    "prediction": prediction.text,
                    "start": prediction.start_char,
                    "score": prediction.score,
                    "em": score.em,
                    "f1": score.f1,
                }
                file.write(json.dumps(line, ensure_ascii=False) + "\n")


@torch.no_grad()
def spans_of_share(
    model: nn.Module, features: Features, topology: Topology, precision: Precision, max_answer_length: int
) -> Spans:
    """Return the spans of this rank's share of the features; every rank must call this, in evaluation mode.

    All ranks run the same number of forward passes.
    """
    by_length = np.argsort(-features.lengths, kind="stable")
    mine = by_length[topology.rank :: topology.world_size]
    most = -(-len(by_length) // topology.world_size)
    batches = np.array_split(mine, -(-most // FEATURES_PER_BATCH[topology.device.type]))
    spans = [
        best_spans(features, indices, start.numpy(), end.numpy(), max_answer_length)
        for indices, (start, end) in _logits(model, features, batches, topology, precision)
        if len(indices)
    ]
    # A rank may have no features.
    no_chars = np.empty(0, dtype=np.int32)
    none = Spans(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32), no_chars, no_chars)
    return Spans.concatenate([none, *spans])


def _logits(
    model: nn.Module, features: Features, batches: list[Indices], topology: Topology, precision: Precision
) -> Iterator[tuple[Indices, Tensor]]:
    """Yield the logits of each batch, (2, tokens), while a GPU computes the next ones."""
    copies: HostCopies[Indices] = HostCopies()
    # Run the layers uncompiled: in evaluation mode torch.compile would compile them again for a few passes.
    with torch.compiler.set_stance("force_eager"):
        for indices in batches:
            batch = pack(features, indices).to(topology.device)
            with autocast(precision, topology.device):
                logits = model(batch)
            copies.push(indices, logits)
            yield from copies.read(lag=AHEAD)
    yield from copies.read(lag=0)
