"""Choose the optimizations of a run: flash attention, torch.compile, CUDA graphs, fused Triton kernels."""

from dataclasses import dataclass

import torch
from torch import nn

from elasticqa.config.train_config import Precision, TrainConfig
from elasticqa.distributed.topology import Topology
from elasticqa.distributed.torch_internals import compile_without_ddp_splits
from elasticqa.errors import ConfigError
from elasticqa.models.kernels.attention import has_flash_attention, has_triton_attention
from elasticqa.models.parallelize import DTYPES
from elasticqa.models.question_answering import ModelSpec, QuestionAnswerer, encoder_layers

MIN_COMPILE_STEPS = 500
"""Minimum number of steps to compile by default: with a cold cache, compilation takes tens of seconds."""

_SMALL_SHARE = 0.1
"""Fraction of GPU memory; if all gathered weights take less, FSDP keeps them until the backward pass by default."""


@dataclass(frozen=True)
class Acceleration:
    """The optimizations in use, as the journal's `setup` line names them."""

    attention: str
    """``flash`` or ``sdpa`` (both on packed batches), or ``padded``."""
    is_compiled: bool
    is_captured: bool
    is_fused: bool
    is_resharded: bool
    """FSDP frees gathered weights between the forward and the backward pass."""


def choose_acceleration(
    config: TrainConfig, topology: Topology, answerer: QuestionAnswerer, precision: Precision, num_steps: int
) -> Acceleration:
    """Return the optimizations that the config requests; an option that is None is on if it makes the run faster.

    Raises:
        ConfigError: a requested optimization does not fit the device, the model or the strategy.
    """
    dtype, spec = DTYPES[precision], answerer.spec
    attention = "padded"
    if spec.is_packed:
        is_flash = config.attention != "sdpa" and has_flash_attention(topology.device, dtype)
        attention = "flash" if is_flash else "sdpa"
    is_resharded = _is_resharded(config, topology, answerer.num_parameters * dtype.itemsize)
    has_kernels = attention == "flash" and has_triton_attention(topology.device, dtype, spec.head_size)
    obstacle = _capture_obstacle(config, topology, spec, is_resharded=is_resharded)
    if config.cuda_graphs and obstacle is not None:
        raise ConfigError(f"cuda_graphs=True does not work with {obstacle}; leave --cuda-graphs out, or change that")
    is_captured = obstacle is None if config.cuda_graphs is None else config.cuda_graphs
    obstacle = _kernels_obstacle(config, has_kernels=has_kernels, is_resharded=is_resharded)
    if config.kernels and obstacle is not None:
        raise ConfigError(f"kernels=True does not work with {obstacle}; use --kernels False, or change that")
    # Without CUDA graphs the fused kernels do not help: the host launches them more slowly than the GPU runs them.
    pays = is_captured and has_kernels and not config.compile
    is_fused = pays if config.kernels is None else config.kernels
    pays = (attention == "flash" or is_captured) and not is_fused and num_steps >= MIN_COMPILE_STEPS
    is_compiled = pays if config.compile is None else config.compile
    return Acceleration(
        attention, is_compiled=is_compiled, is_captured=is_captured, is_fused=is_fused, is_resharded=is_resharded
    )


def check_ranks_agree(topology: Topology, precision: Precision, acceleration: Acceleration) -> None:
    """Check that all ranks use the same precision and optimizations; every rank must call this.

    Raises:
        ConfigError: on every rank, if two ranks differ: their collectives would not match.
    """
    first, *others = topology.all_gather((precision, acceleration))
    for rank, other in enumerate(others, start=1):
        if other != first:
            raise ConfigError(
                f"rank 0 would compute in {_description(*first)}, and rank {rank} in {_description(*other)}: use nodes "
                "with equal GPUs, or set --precision, --attention, --cuda-graphs, --kernels, --compile and --reshard "
                "to values that all of them support"
            )


def _description(precision: Precision, acceleration: Acceleration) -> str:
    optimizations = {
        "compiled": acceleration.is_compiled,
        "captured": acceleration.is_captured,
        "with kernels": acceleration.is_fused,
        "resharded": acceleration.is_resharded,
    }
    return ", ".join([precision, acceleration.attention, *(name for name, is_on in optimizations.items() if is_on)])


def _is_resharded(config: TrainConfig, topology: Topology, num_bytes: int) -> bool:
    """Whether FSDP frees gathered weights, ``num_bytes`` in total, between forward and backward pass."""
    if config.parallel != "fsdp":
        return False
    if config.reshard is not None or topology.device.type != "cuda":
        return config.reshard is not False
    return num_bytes > _SMALL_SHARE * torch.cuda.get_device_properties(topology.device).total_memory


def _capture_obstacle(config: TrainConfig, topology: Topology, spec: ModelSpec, *, is_resharded: bool) -> str | None:
    """Return what rules out CUDA graphs, or None."""
    if topology.device.type != "cuda":
        return "a CPU"
    if not spec.is_packed:
        return f"padded attention (model type {spec.model_type!r}, --attention {config.attention})"
    if is_resharded:
        return "--parallel fsdp with --reshard: it gathers weights again for the backward pass"
    if config.activation_checkpointing:
        return "--activation-checkpointing: it reads the random state, which a CUDA graph capture forbids"
    return None


def _kernels_obstacle(config: TrainConfig, *, has_kernels: bool, is_resharded: bool) -> str | None:
    if not has_kernels:
        return (
            "this device, precision or model: they need a GPU of compute capability 8.0 or newer, bf16 or fp16, and "
            "packed attention"
        )
    if is_resharded:
        return "--parallel fsdp with --reshard: it frees the weights that they read"
    return "--compile True: these layers are not compiled" if config.compile else None


def compile_layers(model: nn.Module) -> None:
    """Compile each encoder layer in place; all layers share one piece of compiled code."""
    # Do not split graphs at DDP's buckets: that is for whole models, and a layer is smaller than a bucket.
    compile_without_ddp_splits()
    for layer in encoder_layers(model):
        layer.compile(dynamic=True)
