"""Load the data of a run: tokenizer, training features, evaluation features and questions."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from elasticqa.config.train_config import TrainConfig
from elasticqa.data.hub import load_tokenizer
from elasticqa.data.squad.cache import CachedFeatures, FeatureRequest, load_or_build
from elasticqa.data.squad.dataset import resolve_dataset
from elasticqa.data.squad.features import Features, Windowing
from elasticqa.data.squad.read import Example, read_squad


@dataclass(frozen=True, kw_only=True)
class Task:
    """The data of a run, equal on every rank; ``facts`` is the ``dataset`` object of the journal."""

    tokenizer: PreTrainedTokenizerBase
    train: Features
    dev: Features | None
    dev_examples: list[Example]
    facts: dict[str, Any]


def load_task(config: TrainConfig, home: Path) -> Task:
    """Return the data that a config names; features come from the cache under ``home`` if it has them.

    Raises:
        ConfigError: data or tokenizer cannot be found, or ``max_length`` and ``doc_stride`` do not fit the questions.
        DataError: a file is not SQuAD v1.1.
    """
    paths = resolve_dataset(config.dataset, config.eval_file, home / "cache" / "datasets")
    tokenizer = load_tokenizer(config.model)
    windowing = Windowing(config.max_length, config.doc_stride)
    cache = home / "cache" / "features"
    train = load_or_build(
        FeatureRequest(paths.train, for_training=True, windowing=windowing, strict=config.strict), tokenizer, cache
    )
    features = first_features(train.features, config.max_train_features)
    dev: CachedFeatures | None = None
    examples: list[Example] = []
    if paths.eval is not None:
        request = FeatureRequest(
            paths.eval, for_training=False, windowing=windowing, max_examples=config.max_eval_examples
        )
        dev = load_or_build(request, tokenizer, cache)
        examples = read_squad(paths.eval, for_training=False).examples[: config.max_eval_examples]
    return Task(
        tokenizer=tokenizer,
        train=features,
        dev=dev.features if dev else None,
        dev_examples=examples,
        facts={
            "name": config.dataset,
            "digest": train.digest,
            "num_train_features": len(features),
            "num_train_examples": train.num_examples,
            "num_eval_features": len(dev.features) if dev else 0,
            "num_eval_examples": len(examples),
            "num_skipped_examples": train.num_skipped_examples,
        },
    )


def first_features(features: Features, limit: int | None) -> Features:
    """Return the first ``limit`` features, or all if ``limit`` is None."""
    if limit is None or limit >= len(features):
        return features
    num_tokens = int(features.offsets[limit])
    return replace(
        features,
        input_ids=features.input_ids[:num_tokens],
        char_offsets=features.char_offsets[:num_tokens],
        offsets=features.offsets[: limit + 1],
        segment_start=features.segment_start[:limit],
        context_start=features.context_start[:limit],
        context_end=features.context_end[:limit],
        start_position=features.start_position[:limit],
        end_position=features.end_position[:limit],
        example_index=features.example_index[:limit],
    )
