"""What all variants of a table share: SQuAD's real features, BERT's architecture with random weights, the clock."""

import argparse
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForQuestionAnswering, AutoTokenizer, PretrainedConfig

from elasticqa.attention import PACKED
from elasticqa.batching import StepPlanner
from elasticqa.build import build_engine
from elasticqa.capture import CapturedEngine
from elasticqa.config import TrainConfig, batch_plan
from elasticqa.model import ModelSpec, QuestionAnswerer
from elasticqa.optim import learning_rate_at
from elasticqa.squad.cache import FeatureRequest, load_or_build
from elasticqa.squad.features import Features, Windowing
from elasticqa.topology import Topology

MAX_LENGTH = 384
MODELS: dict[str, dict[str, int]] = {
    "bert-base": {},
    "bert-large": {
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
    },
}


def parser(description: str) -> argparse.ArgumentParser:
    """Return a parser of the options that every script has."""
    result = argparse.ArgumentParser(description=description)
    result.add_argument("--squad", type=Path, required=True, help="train-v1.1.json or .json.gz")
    result.add_argument("--tokenizer", type=Path, required=True, help="directory of an uncased BERT's tokenizer")
    result.add_argument("--cache", type=Path, required=True, help="directory for features and compiled code")
    result.add_argument("--results", type=Path, required=True, help="file to write, JSON")
    return result


def squad_features(squad: Path, tokenizer: Path, cache: Path) -> Features:
    """Return the features of a training file at length 384 and stride 128."""
    request = FeatureRequest(squad, for_training=True, windowing=Windowing(MAX_LENGTH, 128))
    return load_or_build(request, AutoTokenizer.from_pretrained(tokenizer), cache / "features").features


def bert_config(model: str, **more: Any) -> PretrainedConfig:
    """Return the configuration of a BERT of the size, with its own dropout of 0.1."""
    return AutoConfig.for_model("bert", **MODELS[model], **more)


def card() -> str:
    """Return the name of the GPU."""
    return torch.cuda.get_device_name()


@dataclass
class Peak:
    """Most memory that one of several models in a process needed: its own, and what its steps took above that."""

    own_bytes: int = 0
    most_bytes: int = 0

    @contextmanager
    def building(self) -> Iterator[None]:
        """Count what the block leaves allocated as the model's own."""
        before = torch.cuda.memory_allocated()
        with self.stepping():
            yield
        self.own_bytes = torch.cuda.memory_allocated() - before

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """Note the peak of the block."""
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        yield
        torch.cuda.synchronize()
        taken = torch.cuda.max_memory_allocated() - before
        self.most_bytes = max(self.most_bytes, self.own_bytes + taken)


class Ours:
    """Training steps of elasticqa on this rank."""

    def __init__(self, config: TrainConfig, features: Features, topology: Topology, model: str = "bert-base") -> None:
        """Build an engine; every rank must call this."""
        self._config = config
        self._stack = ExitStack()
        self._plan = batch_plan(config, len(features), topology.world_size)
        self.peak = Peak()
        with self.peak.building():
            bert = bert_config(model, attn_implementation=PACKED)
            torch.manual_seed(config.seed)
            answerer = QuestionAnswerer(
                AutoModelForQuestionAnswering.from_config(bert), ModelSpec.of(bert, config.attention)
            )
            self.engine = build_engine(
                config, topology, plan=self._plan, features=features, answerer=answerer, stack=self._stack
            )
        self._stream = torch.cuda.current_stream()
        self._planner = StepPlanner(
            self._plan,
            features.lengths,
            seed=config.seed,
            rank=topology.rank,
            world_size=topology.world_size,
            micro_batch_size=config.micro_batch_size,
        )
        self.step = 0
        self.losses: list[float] = []

    def warm_up(self, num_steps: int, num_to_come: int) -> None:
        """Run steps, and one of each size that the steps to come have, so that these compile and capture nothing."""
        with torch.cuda.stream(self._stream):
            self.engine.prime(0)
        self.run(num_steps)
        if isinstance(self.engine, CapturedEngine):
            sizes = set()
            with torch.cuda.stream(self._stream), self.peak.stepping():
                for step in range(self.step, self.step + num_to_come):
                    plan = self._planner.step_plan(step)
                    if (size := self.engine.num_tokens(plan)) not in sizes:
                        self.engine.run(plan, 0.0, wants_stop=False)
                        sizes.add(size)

    def run(self, num_steps: int) -> float:
        """Return features per second over the next steps, of all ranks; every rank must call this.

        Figures are read two steps late, as the trainer reads them.
        """
        pending: deque[tuple[torch.Tensor, torch.cuda.Event]] = deque()
        with torch.cuda.stream(self._stream), self.peak.stepping():
            began = time.perf_counter()
            for _ in range(num_steps):
                plan = self._planner.step_plan(self.step)
                rate = learning_rate_at(self.step, self._plan.num_steps, self._config)
                figures = self.engine.run(plan, rate, wants_stop=False).figures
                on_host = torch.empty(figures.shape, pin_memory=True).copy_(figures, non_blocking=True)
                is_copied = torch.cuda.Event()
                is_copied.record()
                pending.append((on_host, is_copied))
                self._read(pending, lag=2)
                self.step += 1
            self._read(pending, lag=0)
            torch.cuda.synchronize()
            seconds = time.perf_counter() - began
        seen = self._plan.samples_seen
        return (seen(self.step) - seen(self.step - num_steps)) / seconds

    def _read(self, pending: deque[tuple[torch.Tensor, torch.cuda.Event]], lag: int) -> None:
        while len(pending) > lag:
            on_host, is_copied = pending.popleft()
            is_copied.synchronize()
            self.losses.append(float(on_host[0]))

    def close(self) -> None:
        """Free graphs and streams."""
        self._stack.close()
