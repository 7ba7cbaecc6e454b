"""Small models and random features, the same on every call."""

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForQuestionAnswering

from elasticqa.data.squad.features import Features
from elasticqa.models.attention import PACKED
from elasticqa.models.question_answering import ModelSpec, QuestionAnswerer

LENGTHS = (1, 2, 7, 64, 33, 64, 3)


def random_features(lengths: tuple[int, ...] = LENGTHS, vocab_size: int = 90) -> Features:
    """Return features of the lengths with random tokens and positions."""
    random = np.random.default_rng(0)
    sizes = np.asarray(lengths)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    start = np.array([random.integers(size) for size in sizes], dtype=np.int32)
    return Features(
        input_ids=random.integers(5, vocab_size, offsets[-1]).astype(np.int32),
        char_offsets=np.zeros((offsets[-1], 2), dtype=np.int32),
        offsets=offsets,
        segment_start=(sizes // 2).astype(np.int32),
        context_start=(sizes // 2).astype(np.int32),
        context_end=sizes.astype(np.int32),
        start_position=start,
        end_position=np.array([random.integers(s, n) for s, n in zip(start, sizes, strict=True)], dtype=np.int32),
        example_index=np.arange(len(sizes), dtype=np.int32),
    )


def tiny(model_type: str, attention: str, implementation: str | None = None, **sizes: int) -> QuestionAnswerer:
    """Return a two-layer model of the type without dropout; equal weights for every attention.

    Args:
        model_type: of the encoder.
        attention: "packed" or "padded".
        implementation: of the attention; the default follows from ``attention``.
        sizes: that differ from the defaults.
    """
    config = AutoConfig.for_model(
        model_type,
        vocab_size=100,
        num_hidden_layers=2,
        num_attention_heads=4,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=1,
        **({"hidden_size": 32, "intermediate_size": 64, "max_position_embeddings": 80} | sizes),
    )
    spec = ModelSpec.of(config, attention)
    torch.manual_seed(0)
    config._attn_implementation = implementation or (PACKED if spec.is_packed else "sdpa")
    return QuestionAnswerer(AutoModelForQuestionAnswering.from_config(config), spec)
