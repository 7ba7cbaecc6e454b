"""Train steps on a GPU, with equal weights and batches for every precision and strategy."""

from contextlib import ExitStack

import torch
from transformers import AutoConfig, AutoModelForQuestionAnswering

from elasticqa.config.batch_plan import BatchPlan, batch_plan
from elasticqa.config.train_config import Precision, TrainConfig
from elasticqa.data.sampler import Sampler
from elasticqa.distributed.topology import Topology
from elasticqa.models.attention import PACKED, PACKED_SDPA
from elasticqa.models.question_answering import ModelSpec, QuestionAnswerer
from elasticqa.training.builder import build_train_step
from elasticqa.training.train_step import TrainStep
from tests.support.models import random_features

LENGTHS = tuple((7 * n) % 61 + 4 for n in range(75))
"""75 features: an epoch has 9 steps of 8 features and one of 3."""
FEATURES = random_features(LENGTHS)


def config_of(precision: Precision, **more: object) -> TrainConfig:
    fields: dict[str, object] = {
        "precision": precision, "global_batch_size": 8, "micro_batch_size": 8, "max_length": 64, "doc_stride": 16,
        "learning_rate": 1e-3, "epochs": 6, "dropout": 0.0, "parallel": "ddp",
        "compile": False, "kernels": False, **more,
    }  # fmt: skip
    return TrainConfig(**fields)  # type: ignore[arg-type]


def train_step_of(config: TrainConfig, topology: Topology, stack: ExitStack) -> tuple[TrainStep, BatchPlan]:
    dropout = config.dropout
    bert = AutoConfig.for_model(
        "bert", vocab_size=100, hidden_size=128, num_hidden_layers=3, num_attention_heads=4, intermediate_size=256,
        max_position_embeddings=80, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
    )  # fmt: skip
    bert._attn_implementation = PACKED_SDPA if config.attention == "sdpa" else PACKED
    torch.manual_seed(0)
    answerer = QuestionAnswerer(AutoModelForQuestionAnswering.from_config(bert), ModelSpec.of(bert, config.attention))
    plan = batch_plan(config, len(FEATURES), topology.world_size)
    train_step = build_train_step(config, topology, plan=plan, features=FEATURES, answerer=answerer, stack=stack)
    train_step.prime(0)
    return train_step, plan


def sampler_of(config: TrainConfig, plan: BatchPlan, topology: Topology) -> Sampler:
    return Sampler(
        plan, FEATURES.lengths, seed=1, rank=topology.rank, world_size=topology.world_size,
        micro_batch_size=config.micro_batch_size,
    )  # fmt: skip


def alone() -> Topology:
    return Topology.from_env({})
