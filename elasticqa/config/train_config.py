"""What a training run is asked to do: one frozen config, and the plan of its batches."""

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from elasticqa.errors import ConfigError

Parallel = Literal["none", "ddp", "fsdp"]
Precision = Literal["auto", "fp32", "bf16", "fp16"]
Attention = Literal["auto", "packed", "sdpa", "padded"]

HARMLESS_FIELDS = frozenset(
    {
        "name",
        "resume",
        "log_every_s",
        "checkpoint_every_steps",
        "keep_checkpoints",
        "eval_every_steps",
        "profile",
        "compile",
        "cuda_graphs",
        "kernels",
        "reshard",
    }
)
"""Fields that may change on resume: they do not alter what is learned from which features."""

MANNER_FIELDS = frozenset(
    {"recipe", "parallel", "precision", "attention", "activation_checkpointing", "micro_batch_size"}
)
"""Fields that may change where the run to go on with is named: they alter how the same is computed, and how fast.

A start that names no run begins one of its own instead, so that two strategies are compared and not mixed.
"""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Every intention of a run with its default and help; facts (world size, device, run id) are not in it."""

    recipe: str = "demo"
    """Named set of defaults that the other options change."""
    name: str | None = None
    """Name of the run on the pages; free text."""
    model: str = "sentence-transformers/all-MiniLM-L6-v2"
    """Hub name or local directory of an encoder with a fast tokenizer."""
    dataset: str = "demo"
    """`demo`, a directory with train*.json and dev*.json (.gz allowed), a SQuAD file, or a hub name."""
    eval_file: str | None = None
    """SQuAD file to evaluate on instead of the data set's own development split."""
    strict: bool = False
    """Refuse a data set with an answer that is not at its place in the context, instead of skipping it."""
    max_train_features: int | None = None
    """Train on the first N features only."""
    max_eval_examples: int | None = None
    """Evaluate on the first N questions only."""
    parallel: Parallel = "ddp"
    """How ranks share the model: `none` (one process), `ddp`, or `fsdp`."""
    precision: Precision = "auto"
    """`auto`: bf16 where the device has it, else fp16; fp32 on a CPU."""
    attention: Attention = "auto"
    """`packed` removes padding (BERT family); `sdpa` too, without the flash kernel; `auto` packs where it can."""
    compile: bool | None = None
    """Compile the encoder's layers; unset: where it pays (flash or CUDA graphs, no kernels of ours, 500 steps)."""
    cuda_graphs: bool | None = None
    """Replay whole steps as CUDA graphs; unset: on a GPU, unless padded (FSDP only with `reshard` off)."""
    kernels: bool | None = None
    """Compute layers and update by kernels of ours, which need no compiling; unset: with CUDA graphs."""
    reshard: bool | None = None
    """FSDP: free gathered weights until the backward pass; unset: not where they take under a tenth of a GPU."""
    activation_checkpointing: bool = False
    """Recompute each layer in the backward pass: less memory, about a third more work."""
    epochs: int = 1
    """Passes over the training features."""
    max_steps: int | None = None
    """Stop after N optimizer steps, whatever the epochs."""
    global_batch_size: int | None = 24
    """Features per optimizer step over all ranks; `None`: micro_batch_size on each rank of the run's first start."""
    micro_batch_size: int = 24
    """At most so many features per rank and forward pass."""
    max_length: int = 384
    """Tokens of a window: question, context and special tokens."""
    doc_stride: int = 128
    """Tokens by which two windows of a context overlap."""
    max_answer_length: int = 30
    """Tokens of the longest answer that is considered."""
    learning_rate: float = 3e-5
    """Peak of the learning rate."""
    weight_decay: float = 0.01
    """AdamW decay of matrices; biases and LayerNorm weights are not decayed."""
    warmup_ratio: float = 0.1
    """Share of the steps over which the learning rate rises; then it falls linearly to 0."""
    max_grad_norm: float = 1.0
    """Gradients are clipped to this global norm."""
    dropout: float | None = None
    """Dropout probability everywhere in the model; unset keeps the model's own."""
    seed: int = 42
    """Of the data order, the new head and dropout."""
    eval_before: bool = False
    """Evaluate before the first step as well."""
    eval_every_steps: int | None = None
    """Evaluate every N steps; always at the end."""
    checkpoint_every_steps: int = 500
    """Save a checkpoint every N steps; always at the end and when asked to stop."""
    keep_checkpoints: int = 2
    """The newest N checkpoints are kept."""
    profile: bool = False
    """Trace ten steps after a warm-up with torch.profiler, on rank 0."""
    resume: str = "auto"
    """`auto`: go on with the newest unfinished run of this config; `none`: start anew; or a run or a checkpoint."""
    log_every_s: float = 5.0
    """Seconds between two progress lines."""

    def __post_init__(self) -> None:
        """Refuse what cannot run."""
        for field in fields(self):
            _check(field.name, getattr(self, field.name))
        if self.doc_stride >= self.max_length:
            raise ConfigError(
                f"doc_stride={self.doc_stride} must be smaller than max_length={self.max_length}: "
                "windows would not move forward; lower --doc-stride or raise --max-length"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return every field, as the journal's first line records it."""
        return asdict(self)

    def fixed(self, first_world_size: int) -> "TrainConfig":
        """Return the config with the global batch that its run keeps, whatever the world size becomes.

        Args:
            first_world_size: ranks of the run's first attempt.

        >>> TrainConfig(global_batch_size=None, micro_batch_size=4).fixed(first_world_size=2).global_batch_size
        8
        """
        if self.global_batch_size is not None:
            return self
        return replace(self, global_batch_size=self.micro_batch_size * first_world_size)

    def size_for(self, world_size: int) -> int:
        """Return the global batch, which must have been fixed.

        Raises:
            ConfigError: it is smaller than the world.
        """
        size = self.global_batch_size
        assert size is not None
        if size < world_size:
            raise ConfigError(
                f"global_batch_size={size} cannot feed world_size={world_size}: every rank needs a "
                f"feature; use at most {size} ranks or raise --global-batch-size"
            )
        return size

    def differences(
        self, recorded: dict[str, Any], may_change: frozenset[str] = HARMLESS_FIELDS
    ) -> dict[str, tuple[Any, Any]]:
        """Return the fields that differ from a recorded config and may not change, each as (recorded, asked).

        >>> TrainConfig().differences(TrainConfig(seed=1, name="x").to_dict())
        {'seed': (1, 42)}
        """
        return {
            field.name: (recorded.get(field.name), getattr(self, field.name))
            for field in fields(self)
            if field.name not in may_change and recorded.get(field.name) != getattr(self, field.name)
        }


_LEAST: dict[str, float] = {
    "max_train_features": 1,
    "max_eval_examples": 1,
    "epochs": 1,
    "max_steps": 1,
    "global_batch_size": 1,
    "micro_batch_size": 1,
    "max_length": 16,
    "doc_stride": 1,
    "max_answer_length": 1,
    "learning_rate": 0.0,
    "weight_decay": 0.0,
    "warmup_ratio": 0.0,
    "max_grad_norm": 1e-12,
    "dropout": 0.0,
    "seed": 0,
    "eval_every_steps": 1,
    "checkpoint_every_steps": 1,
    "keep_checkpoints": 1,
    "log_every_s": 0.0,
}


_MOST: dict[str, float] = {"warmup_ratio": 1.0, "dropout": 0.99, "seed": 2**63 - 1}
_MOST_OF_OTHERS = 2**31 - 1

_MOST_PATH_PART_BYTES = 255
"""No file system has a longer name, and asking for one is an error of its own kind."""


def _check(field: str, value: object) -> None:
    """Refuse a number outside its range, and a path that cannot exist."""
    if isinstance(value, str) and any(len(part.encode()) > _MOST_PATH_PART_BYTES for part in value.split("/")):
        raise ConfigError(f"{field} has a part of over {_MOST_PATH_PART_BYTES} bytes; {_flag(field)} sets it")
    if field not in _LEAST or not isinstance(value, int | float):
        return
    # Of whole numbers first: the conversion of a huge one to a float fails.
    most = _MOST.get(field, _MOST_OF_OTHERS if isinstance(value, int) else math.inf)
    if isinstance(value, int) and value > most:
        raise ConfigError(f"{field} is too large: at most {most}; {_flag(field)} sets it")
    if not math.isfinite(value):
        raise ConfigError(f"{field}={value} is not a finite number; {_flag(field)} sets it")
    if value < _LEAST[field]:
        raise ConfigError(f"{field}={value} is too small: at least {_LEAST[field]}; {_flag(field)} sets it")
    if value > most:
        raise ConfigError(f"{field}={value} is too large: at most {most}; {_flag(field)} sets it")


def _flag(field: str) -> str:
    return "--" + field.replace("_", "-")
