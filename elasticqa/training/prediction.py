"""Answers of a trained model, in this process, with the forward pass and span search of the evaluation."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn
from transformers import AutoConfig, PretrainedConfig, PreTrainedTokenizerBase

from elasticqa.config.train_config import Precision, TrainConfig
from elasticqa.data.hub import load_tokenizer, resolve_model
from elasticqa.data.squad.answers import Prediction, join_spans
from elasticqa.data.squad.features import Windowing, build_features
from elasticqa.data.squad.read import Example
from elasticqa.distributed.topology import Topology, resolve_precision
from elasticqa.errors import ConfigError
from elasticqa.models.question_answering import ModelSpec, QuestionAnswerer, load_model
from elasticqa.run.journal_reader import first_attempt_line
from elasticqa.training.evaluation import spans_of_share

_LENGTHS = ("max_length", "doc_stride", "max_answer_length")


@dataclass(frozen=True, kw_only=True)
class Predictor:
    """A trained model on its device, with its window and answer lengths in tokens."""

    model: nn.Module
    tokenizer: PreTrainedTokenizerBase
    topology: Topology
    precision: Precision
    windowing: Windowing
    max_answer_length: int

    @classmethod
    def load(cls, directory: Path, *, max_length: int | None = None, doc_stride: int | None = None) -> "Predictor":
        """Load the model of a directory that ``save_pretrained`` wrote; lengths that are None are those of its run.

        Raises:
            ConfigError: there is no model trained for question answering, or the lengths do not fit it.
        """
        resolve_model(str(directory))
        tokenizer = load_tokenizer(str(directory))
        config = _config(directory, max_length, doc_stride)
        bare, spec = load_model(directory, config)
        topology = Topology.from_env({})
        return cls(
            model=QuestionAnswerer(bare, spec).to(topology.device).eval(),
            tokenizer=tokenizer,
            topology=topology,
            precision=resolve_precision("auto", topology.device),
            windowing=Windowing(config.max_length, config.doc_stride),
            max_answer_length=config.max_answer_length,
        )

    def __call__(self, examples: Sequence[Example]) -> list[Prediction]:
        """Return one answer per example, in order; there must be at least one example.

        Raises:
            ConfigError: a question leaves no room for the context in a window.
        """
        features = build_features(examples, self.tokenizer, self.windowing)
        spans = spans_of_share(self.model, features, self.topology, self.precision, self.max_answer_length)
        return join_spans(features, spans, examples)


def _config(directory: Path, max_length: int | None, doc_stride: int | None) -> TrainConfig:
    model_config = _model_config(directory)
    recorded = (first_attempt_line(directory.resolve().parent) or {}).get("config")
    lengths: dict[str, Any] = {}
    if isinstance(recorded, dict):
        lengths = {name: recorded[name] for name in _LENGTHS if isinstance(recorded.get(name), int)}
    longest = getattr(model_config, "max_position_embeddings", None)
    if not lengths and longest is not None:
        room = longest - ModelSpec.of(model_config, "auto").first_position
        lengths = {
            "max_length": min(TrainConfig.max_length, room),
            "doc_stride": min(TrainConfig.doc_stride, room // 3),
        }
    asked = {"max_length": max_length, "doc_stride": doc_stride}
    lengths |= {name: value for name, value in asked.items() if value is not None}
    return TrainConfig(model=str(directory), **lengths)


def _model_config(directory: Path) -> PretrainedConfig:
    """Return the configuration of a model with a trained head: transformers would initialize a missing one randomly."""
    try:
        model_config: PretrainedConfig = AutoConfig.from_pretrained(directory)
    except (OSError, KeyError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"model={str(directory)!r} has no configuration that can be read: {reason}") from error
    kinds = model_config.architectures or ["no kind"]
    if not any(kind.endswith("ForQuestionAnswering") for kind in kinds):
        raise ConfigError(
            f"model={str(directory)!r} was not trained to answer questions: its config.json says {', '.join(kinds)}; "
            "give a run, or the directory model/ of one"
        )
    return model_config
