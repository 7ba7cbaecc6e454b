"""EM and F1 of a model: features spread over the ranks, each on one, only spans gathered."""

import json
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from elasticqa.batching import pack
from elasticqa.config import Precision
from elasticqa.parallel import DTYPES
from elasticqa.metrics import Evaluation
from elasticqa.squad.answers import Prediction, Spans, best_spans, join_spans
from elasticqa.squad.features import Features
from elasticqa.squad.metric import Score, mean_metrics, squad_scores
from elasticqa.squad.read import Example
from elasticqa.topology import Topology

FEATURES_PER_BATCH = 64


@dataclass(frozen=True, kw_only=True)
class Evaluator:
    """Evaluates on one split; predictions are kept in the run directory."""

    features: Features
    examples: list[Example]
    topology: Topology
    precision: Precision
    max_answer_length: int
    run_directory: Path
    attempt: int
    split: str = "dev"

    def __call__(self, model: nn.Module, step: int) -> Evaluation | None:
        """Return the figures on rank 0, None elsewhere; every rank must call this.

        Args:
            model: as wrapped; it is left in evaluation mode.
            step: optimizer steps done.
        """
        began = time.perf_counter()
        model.eval()
        parts = self.topology.gather(self._spans_of_share(model))
        if not self.topology.is_main:
            return None
        predictions = join_spans(self.features, Spans.concatenate(parts), self.examples)
        scores = squad_scores({p.id: p.text for p in predictions}, self.examples)
        metrics = mean_metrics(scores)
        path = f"predictions/attempt-{self.attempt:04d}-step-{step:08d}-{self.split}.jsonl"
        self._write(self.run_directory / path, predictions, scores)
        return Evaluation(
            step=step,
            split=self.split,
            em=metrics.em,
            f1=metrics.f1,
            loss=None,
            num_examples=metrics.num_examples,
            num_features=len(self.features),
            eval_time_s=time.perf_counter() - began,
            predictions=path,
        )

    @torch.no_grad()
    def _spans_of_share(self, model: nn.Module) -> Spans:
        """Return the spans of this rank's features; all ranks run equally many forward passes."""
        by_length = np.argsort(-self.features.lengths, kind="stable")
        mine = by_length[self.topology.rank :: self.topology.world_size]
        most = -(-len(by_length) // self.topology.world_size)
        autocast: Any = nullcontext()
        if self.precision != "fp32":
            autocast = torch.autocast(self.topology.device.type, dtype=DTYPES[self.precision])
        spans = []
        for indices in np.array_split(mine, -(-most // FEATURES_PER_BATCH)):
            batch = pack(self.features, indices).to(self.topology.device)
            with autocast:
                logits = model(batch)
            if len(indices):
                start, end = logits.cpu().numpy()
                spans.append(best_spans(self.features, indices, start, end, self.max_answer_length))
        return Spans.concatenate(spans) if spans else NO_SPANS

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


NO_SPANS = Spans(
    np.empty(0, dtype=np.int64),
    np.empty(0, dtype=np.float32),
    np.empty(0, dtype=np.int32),
    np.empty(0, dtype=np.int32),
)
"""Of a rank that has no feature to evaluate."""
