"""The config of a training run: each option with its type, default, range, help and whether it may change on resume."""

import math
from dataclasses import Field, asdict, dataclass, fields, replace
from enum import Enum, auto
from typing import Annotated, Any, Literal

from elasticqa.errors import ConfigError

Parallel = Literal["none", "ddp", "fsdp"]
Precision = Literal["auto", "fp32", "bf16", "fp16"]
Attention = Literal["auto", "packed", "sdpa", "padded"]

_LARGEST_INTEGER = 2**31 - 1
_MAX_PATH_PART_BYTES = 255
"""Longest file name on Linux; a longer one raises OSError (ENAMETOOLONG) instead of counting as missing."""


@dataclass(frozen=True)
class Range:
    """Smallest and largest value of an option; without ``most``, the largest 32-bit integer or any finite float."""

    least: float
    most: float | None = None


class OnResume(Enum):
    """When an option may change on resume; without a mark, never."""

    MAY_CHANGE = auto()
    """The option may always change: it does not affect the weights that training computes."""
    MAY_CHANGE_IF_NAMED = auto()
    """The option may change if `--resume` or ELASTICQA_RUN_ID names the run; else a changed value starts a new run.

    It affects only how the result is computed and how fast. Starting a new run by default keeps comparisons of
    strategies valid.
    """


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """All options of a training run; world size, device and run id are not options."""

    recipe: Annotated[str, OnResume.MAY_CHANGE_IF_NAMED] = "demo"
    """Named set of defaults; other options override them."""
    name: Annotated[str | None, OnResume.MAY_CHANGE] = None
    """Name of the run on the pages; free text."""
    model: str = "sentence-transformers/all-MiniLM-L6-v2"
    """Hub name or local directory of an encoder with a fast tokenizer."""
    dataset: str = "demo"
    """`demo`, a directory with train*.json and dev*.json (.gz allowed), a SQuAD file, or a hub name."""
    eval_file: str | None = None
    """SQuAD file to evaluate on instead of the data set's own development split."""
    strict: bool = False
    """Refuse a data set with an answer that is not at its offset in the context, instead of skipping the question."""
    max_train_features: Annotated[int | None, Range(1)] = None
    """Train on the first N features only."""
    max_eval_examples: Annotated[int | None, Range(1)] = None
    """Evaluate on the first N questions only."""
    parallel: Annotated[Parallel, OnResume.MAY_CHANGE_IF_NAMED] = "ddp"
    """How ranks share the model: `none` (one process), `ddp`, or `fsdp`."""
    precision: Annotated[Precision, OnResume.MAY_CHANGE_IF_NAMED] = "auto"
    """`auto`: bf16 if the GPU supports it, else fp16; fp32 on a CPU."""
    attention: Annotated[Attention, OnResume.MAY_CHANGE_IF_NAMED] = "auto"
    """`packed`: no padding (BERT family); `sdpa`: packed, but never flash attention; `auto`: packed if possible."""
    compile: Annotated[bool | None, OnResume.MAY_CHANGE] = None
    """Compile the encoder's layers; default: on from 500 steps if `kernels` is off and flash or CUDA graphs are on."""
    cuda_graphs: Annotated[bool | None, OnResume.MAY_CHANGE] = None
    """Replay each step as a CUDA graph; default: on for a GPU, unless padded or FSDP with `reshard` on."""
    kernels: Annotated[bool | None, OnResume.MAY_CHANGE] = None
    """Use our Triton kernels for layers and optimizer; default: on with CUDA graphs, if the GPU supports them."""
    reshard: Annotated[bool | None, OnResume.MAY_CHANGE] = None
    """FSDP: free gathered weights after the forward pass; default: on if they exceed 10% of GPU memory."""
    activation_checkpointing: Annotated[bool, OnResume.MAY_CHANGE_IF_NAMED] = False
    """Recompute each layer in the backward pass: less memory, about a third more work."""
    epochs: Annotated[int, Range(1)] = 1
    """Passes over the training features."""
    max_steps: Annotated[int | None, Range(1)] = None
    """Stop after N optimizer steps, even if epochs remain."""
    global_batch_size: Annotated[int | None, Range(1)] = 24
    """Features per optimizer step over all ranks; `None`: micro_batch_size times the ranks of the run's first start."""
    micro_batch_size: Annotated[int, Range(1), OnResume.MAY_CHANGE_IF_NAMED] = 24
    """Largest number of features per rank and forward pass."""
    max_length: Annotated[int, Range(16)] = 384
    """Tokens of a window: question, context and special tokens."""
    doc_stride: Annotated[int, Range(1)] = 128
    """Tokens by which two windows of a context overlap."""
    max_answer_length: Annotated[int, Range(1)] = 30
    """Tokens of the longest answer that is considered."""
    learning_rate: Annotated[float, Range(0.0)] = 3e-5
    """Peak learning rate."""
    weight_decay: Annotated[float, Range(0.0)] = 0.01
    """AdamW decay of matrices; biases and LayerNorm weights are not decayed."""
    warmup_ratio: Annotated[float, Range(0.0, 1.0)] = 0.1
    """Share of the steps over which the learning rate rises; then it falls linearly to 0."""
    max_grad_norm: Annotated[float, Range(1e-12)] = 1.0
    """Gradients are clipped to this global norm."""
    dropout: Annotated[float | None, Range(0.0, 0.99)] = None
    """Dropout probability everywhere in the model; default: the model's own."""
    seed: Annotated[int, Range(0, 2**63 - 1)] = 42
    """Seed of the data order, the new head and dropout."""
    eval_before: bool = False
    """Also evaluate before the first step."""
    eval_every_steps: Annotated[int | None, Range(1), OnResume.MAY_CHANGE] = None
    """Evaluate every N steps; always at the end."""
    checkpoint_every_steps: Annotated[int, Range(1), OnResume.MAY_CHANGE] = 500
    """Save a checkpoint every N steps; always at the end and when asked to stop."""
    keep_checkpoints: Annotated[int, Range(1), OnResume.MAY_CHANGE] = 2
    """Keep the newest N checkpoints."""
    profile: Annotated[bool, OnResume.MAY_CHANGE] = False
    """Trace ten steps after a warm-up with torch.profiler, on rank 0."""
    resume: Annotated[str, OnResume.MAY_CHANGE] = "auto"
    """`auto`: resume the newest unfinished run of this config; `none`: start a new run; or a run or a checkpoint."""
    log_every_s: Annotated[float, Range(0.0), OnResume.MAY_CHANGE] = 5.0
    """Seconds between two progress lines."""

    def __post_init__(self) -> None:
        """Refuse values outside their range, and combinations that cannot run."""
        for field in fields(self):
            _check(field, getattr(self, field.name))
        if self.doc_stride >= self.max_length:
            raise ConfigError(
                f"doc_stride={self.doc_stride} must be smaller than max_length={self.max_length}: "
                "windows would not move forward; lower --doc-stride or raise --max-length"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return every field, as the journal's first line records it."""
        return asdict(self)

    def with_global_batch_size(self, first_world_size: int) -> "TrainConfig":
        """Return the config with the global batch of the run's first attempt, which the run keeps at any world size.

        >>> TrainConfig(global_batch_size=None, micro_batch_size=4).with_global_batch_size(2).global_batch_size
        8
        """
        if self.global_batch_size is not None:
            return self
        return replace(self, global_batch_size=self.micro_batch_size * first_world_size)

    def differences(
        self, recorded: dict[str, Any], may_change: frozenset[str] | None = None
    ) -> dict[str, tuple[Any, Any]]:
        """Return the fields that differ from a recorded config and may not change, each as (recorded, asked).

        >>> TrainConfig().differences(TrainConfig(seed=1, name="x").to_dict())
        {'seed': (1, 42)}
        """
        may_change = CHANGEABLE_FIELDS if may_change is None else may_change
        # The recorded attempt used the defaults of options that were added later.
        before = TrainConfig().to_dict() | recorded
        return {
            field.name: (before[field.name], getattr(self, field.name))
            for field in fields(self)
            if field.name not in may_change and before[field.name] != getattr(self, field.name)
        }


def _marks(field: Field[Any]) -> tuple[Any, ...]:
    return getattr(field.type, "__metadata__", ())


def _fields_marked(mark: OnResume) -> frozenset[str]:
    return frozenset(field.name for field in fields(TrainConfig) if mark in _marks(field))


CHANGEABLE_FIELDS = _fields_marked(OnResume.MAY_CHANGE)
CHANGEABLE_FIELDS_OF_NAMED_RUN = CHANGEABLE_FIELDS | _fields_marked(OnResume.MAY_CHANGE_IF_NAMED)


def _check(field: Field[Any], value: object) -> None:
    """Raise ConfigError for a number outside its range, or a path that cannot exist."""
    way_out = f"--{field.name.replace('_', '-')} sets it"
    if isinstance(value, str) and any(len(part.encode()) > _MAX_PATH_PART_BYTES for part in value.split("/")):
        raise ConfigError(f"{field.name} has a part of over {_MAX_PATH_PART_BYTES} bytes; {way_out}")
    bounds = next((mark for mark in _marks(field) if isinstance(mark, Range)), None)
    if bounds is None or not isinstance(value, int | float):
        return
    most = bounds.most
    if most is None:
        most = _LARGEST_INTEGER if isinstance(value, int) else math.inf
    # Integers first: math.isfinite fails for a huge one.
    if isinstance(value, int) and value > most:
        raise ConfigError(f"{field.name} is too large: at most {most}; {way_out}")
    if not math.isfinite(value):
        raise ConfigError(f"{field.name}={value} is not a finite number; {way_out}")
    if value < bounds.least:
        raise ConfigError(f"{field.name}={value} is too small: at least {bounds.least}; {way_out}")
    if value > most:
        raise ConfigError(f"{field.name}={value} is too large: at most {most}; {way_out}")
