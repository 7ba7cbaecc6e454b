"""An encoder with a question-answering head, for packed and padded batches."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from pickle import UnpicklingError

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from transformers import AutoConfig, AutoModelForQuestionAnswering, PretrainedConfig, PreTrainedModel
from transformers.utils import logging as transformers_logging

from elasticqa.config.train_config import TrainConfig
from elasticqa.data.micro_batch import MicroBatch
from elasticqa.errors import ConfigError, first_line
from elasticqa.models.attention import PACKED, PACKED_SDPA

PACKABLE = frozenset({"bert", "electra", "roberta", "xlm-roberta", "camembert"})
"""Model types in which tokens interact only through transformers' attention interface."""

_SHIFTED_POSITIONS = frozenset({"roberta", "xlm-roberta", "camembert"})
"""Model types whose first position is pad_token_id + 1."""

_DROPOUT_FIELDS = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "dropout",
    "attention_dropout",
    "qa_dropout",
    "classifier_dropout",
)

# transformers raises these for files that are missing, damaged or do not fit the configuration.
_LOAD_ERRORS = (OSError, KeyError, ValueError, RuntimeError, SafetensorError, UnpicklingError)


@dataclass(frozen=True)
class ModelSpec:
    """The inputs that a model expects; ``head_size`` is None unless batches are packed."""

    model_type: str
    is_packed: bool
    first_position: int
    has_token_types: bool
    pad_token_id: int
    head_size: int | None

    @classmethod
    def of(cls, model_config: PretrainedConfig, attention: str) -> "ModelSpec":
        """Return the spec of a model configuration and the value of ``--attention``.

        Raises:
            ConfigError: the attention needs packed batches and the model type does not support them.
        """
        model_type = str(model_config.model_type)
        if attention in ("packed", "sdpa") and model_type not in PACKABLE:
            raise ConfigError(
                f"attention={attention!r} does not fit a model of type {model_type!r}: packed batches work with "
                f"{', '.join(sorted(PACKABLE))}; use --attention padded"
            )
        pad_token_id = getattr(model_config, "pad_token_id", None) or 0
        is_packed = attention != "padded" and model_type in PACKABLE
        return cls(
            model_type=model_type,
            is_packed=is_packed,
            first_position=pad_token_id + 1 if model_type in _SHIFTED_POSITIONS else 0,
            has_token_types=getattr(model_config, "type_vocab_size", 0) > 1,
            pad_token_id=pad_token_id,
            head_size=model_config.hidden_size // model_config.num_attention_heads if is_packed else None,
        )


def load_model(path: str | Path, config: TrainConfig) -> tuple[PreTrainedModel, ModelSpec]:
    """Return the model in fp32 on the CPU, with a new head initialized from the seed, and its spec.

    Raises:
        ConfigError: the model cannot be loaded for question answering, or ``max_length`` exceeds its positions.
    """
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        model_config = AutoConfig.from_pretrained(path)
        spec = ModelSpec.of(model_config, config.attention)
        if config.dropout is not None:
            for field in _DROPOUT_FIELDS:
                if hasattr(model_config, field):
                    setattr(model_config, field, config.dropout)
        packed = PACKED_SDPA if config.attention == "sdpa" else PACKED
        torch.manual_seed(config.seed)
        model = AutoModelForQuestionAnswering.from_pretrained(
            path,
            config=model_config,
            dtype=torch.float32,
            attn_implementation=packed if spec.is_packed else "sdpa",
        )
    except ConfigError:
        raise
    except _LOAD_ERRORS as error:
        raise ConfigError(
            f"model={config.model!r} cannot be loaded for question answering: {first_line(error)}; "
            "give a directory or hub name of an encoder that AutoModelForQuestionAnswering knows"
        ) from error
    longest = getattr(model_config, "max_position_embeddings", None)
    if longest is not None and config.max_length + spec.first_position > longest:
        raise ConfigError(
            f"max_length={config.max_length} exceeds the positions of model={config.model!r}: "
            f"at most {longest - spec.first_position}; lower --max-length"
        )
    if config.activation_checkpointing:
        checkpoint_activations(model)
    return model, spec


def encoder_layers(model: nn.Module) -> list[nn.Module]:
    """Return the encoder's layers: the longest ``nn.ModuleList`` of the model.

    Raises:
        ConfigError: the model has no list of layers.
    """
    stacks = [list(module) for module in model.modules() if isinstance(module, nn.ModuleList) and len(module)]
    if not stacks:
        raise ConfigError(
            "this model has no list of layers, which sharding and activation checkpointing need: "
            "use ddp, without --activation-checkpointing"
        )
    return max(stacks, key=len)


def checkpoint_activations(model: nn.Module) -> None:
    """Make each encoder layer save only its inputs and run again, with equal dropout, in the backward pass.

    Wraps ``forward``, so that hooks of the layer (FSDP gathers parameters in them) run outside. Uses the non-reentrant
    variant, since keyword arguments and DDP need it.

    Raises:
        ConfigError: the model has no list of layers.
    """
    for layer in encoder_layers(model):
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)


class QuestionAnswerer(nn.Module):
    """A transformers question-answering model that maps a micro-batch to logits of its packed tokens."""

    def __init__(self, model: nn.Module, spec: ModelSpec) -> None:
        super().__init__()
        self.model = model
        self.spec = spec

    @property
    def num_parameters(self) -> int:
        """Number of parameters of the whole model."""
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def flops_per_token(self) -> int:
        """Floating-point operations per token of forward and backward, without attention scores.

        6 per parameter that multiplies every token (Kaplan et al. 2020, arXiv:2001.08361, table 1), so without
        embedding tables.
        """
        embeddings = sum(module.weight.numel() for module in self.modules() if isinstance(module, nn.Embedding))
        return 6 * (self.num_parameters - embeddings)

    def forward(self, batch: MicroBatch) -> Tensor:
        """Return start and end logits of each token, (2, T), in fp32."""
        if self.spec.is_packed:
            inputs: dict[str, object] = {
                "input_ids": batch.input_ids[None],
                "position_ids": batch.position_ids[None] + self.spec.first_position,
                "packing": batch,
            }
            token_type_ids = batch.token_type_ids[None]
        else:
            ids = batch.input_ids[batch.pad_index].masked_fill(~batch.mask, self.spec.pad_token_id)
            inputs = {"input_ids": ids, "attention_mask": batch.mask.long()}
            token_type_ids = batch.token_type_ids[batch.pad_index].masked_fill(~batch.mask, 0)
        if self.spec.has_token_types:
            inputs["token_type_ids"] = token_type_ids
        output = self.model(**inputs)
        logits = torch.stack([output.start_logits.float().flatten(), output.end_logits.float().flatten()])
        return logits if self.spec.is_packed else logits[:, batch.unpad_index]


def feature_losses(logits: Tensor, batch: MicroBatch) -> Tensor:
    """Return the loss of each feature, (B,): the mean of the two cross entropies over its own tokens."""
    # Use index_select: on a GPU, the backward pass of indexing sorts all indices.
    padded = logits.index_select(1, batch.pad_index.flatten()).unflatten(1, batch.mask.shape)
    padded = padded.masked_fill(~batch.mask, float("-inf"))
    start_losses = F.cross_entropy(padded[0], batch.start_positions, reduction="none")
    end_losses = F.cross_entropy(padded[1], batch.end_positions, reduction="none")
    return (start_losses + end_losses) / 2
