"""Which shortcuts a run takes on its devices: the flash kernel, torch.compile, CUDA graphs, kernels of ours."""

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch._inductor.runtime.cache_dir_utils import default_cache_dir

from elasticqa.config.train_config import Precision, TrainConfig
from elasticqa.distributed.topology import Topology
from elasticqa.errors import ConfigError
from elasticqa.models.attention import has_flash
from elasticqa.models.kernels.attention import has_kernel
from elasticqa.models.parallelize import DTYPES
from elasticqa.models.question_answering import ModelSpec, QuestionAnswerer, encoder_layers

WORTHWHILE_STEPS = 500
"""Steps from which on compiling, some tens of seconds without a warm cache, is paid back."""


_OF_TORCH, _OF_TRITON = "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"
"""Variables: neither takes the place of its cache from anywhere else."""

_SMALL_SHARE = 0.1
"""Of a GPU's memory: gathered weights that take less may stay from the forward to the backward pass."""


@dataclass(frozen=True)
class Acceleration:
    """The shortcuts in use: ``attention`` is ``flash``, ``sdpa`` (both packed) or ``padded``."""

    attention: str
    is_compiled: bool
    is_captured: bool
    is_fused: bool
    is_resharded: bool
    """FSDP frees gathered weights until the backward pass."""


def accelerate(
    config: TrainConfig, topology: Topology, answerer: QuestionAnswerer, precision: Precision, num_steps: int
) -> Acceleration:
    """Return the shortcuts that were asked for, or those that pay.

    Args:
        config: of the run.
        topology: of this attempt.
        answerer: the model, wrapped or not.
        precision: in use.
        num_steps: of the run.

    Raises:
        ConfigError: what was asked for does not fit the device, the model or the strategy.
    """
    dtype, spec = DTYPES[precision], answerer.spec
    attention = "padded"
    if spec.is_packed:
        is_flash = config.attention != "sdpa" and has_flash(topology.device, dtype)
        attention = "flash" if is_flash else "sdpa"
    is_resharded = _is_resharded(config, topology, answerer.num_parameters * dtype.itemsize)
    has_kernels = attention == "flash" and has_kernel(topology.device, dtype, spec.head_size)
    obstacle = _not_captured(config, topology, spec, is_resharded=is_resharded)
    if config.cuda_graphs and obstacle is not None:
        raise ConfigError(f"cuda_graphs=True does not fit {obstacle}; leave --cuda-graphs out, or change that")
    is_captured = obstacle is None if config.cuda_graphs is None else config.cuda_graphs
    if config.kernels:
        _check_kernels(config, has_kernels=has_kernels, is_resharded=is_resharded)
    # Without a capture starting so many kernels from the host takes longer than they do.
    pays = is_captured and has_kernels and not config.compile
    is_fused = pays if config.kernels is None else config.kernels
    pays = (attention == "flash" or is_captured) and not is_fused and num_steps >= WORTHWHILE_STEPS
    is_compiled = pays if config.compile is None else config.compile
    return Acceleration(
        attention, is_compiled=is_compiled, is_captured=is_captured, is_fused=is_fused, is_resharded=is_resharded
    )


def check_equal(topology: Topology, precision: Precision, acceleration: Acceleration) -> None:
    """Refuse ranks that would not compute alike; every rank must call this.

    Raises:
        ConfigError: on every rank, if two differ: what they exchange would not match.
    """
    first, *others = topology.share((precision, acceleration))
    for rank, other in enumerate(others, start=1):
        if other != first:
            raise ConfigError(
                f"rank 0 would compute in {_told(*first)}, and rank {rank} in {_told(*other)}: use nodes with equal "
                "GPUs, or set --precision, --attention, --cuda-graphs, --kernels, --compile and --reshard to what all "
                "can do"
            )


def _told(precision: Precision, acceleration: Acceleration) -> str:
    shortcuts = {
        "compiled": acceleration.is_compiled,
        "captured": acceleration.is_captured,
        "with kernels": acceleration.is_fused,
        "resharded": acceleration.is_resharded,
    }
    return ", ".join([precision, acceleration.attention, *(name for name, is_on in shortcuts.items() if is_on)])


def _is_resharded(config: TrainConfig, topology: Topology, num_bytes: int) -> bool:
    """Whether FSDP frees weights, of so many bytes when gathered, between forward and backward pass."""
    if config.parallel != "fsdp":
        return False
    if config.reshard is not None or topology.device.type != "cuda":
        return config.reshard is not False
    return num_bytes > _SMALL_SHARE * torch.cuda.get_device_properties(topology.device).total_memory


def _not_captured(config: TrainConfig, topology: Topology, spec: ModelSpec, *, is_resharded: bool) -> str | None:
    if topology.device.type != "cuda":
        return "a CPU"
    if not spec.is_packed:
        return f"padded attention (model type {spec.model_type!r}, --attention {config.attention})"
    if is_resharded:
        return "--parallel fsdp with --reshard: it gathers weights anew for the backward pass"
    if config.activation_checkpointing:
        return "--activation-checkpointing: it reads the random state, which a capture forbids"
    return None


def _check_kernels(config: TrainConfig, *, has_kernels: bool, is_resharded: bool) -> None:
    obstacle = None
    if not has_kernels:
        obstacle = (
            "this device, precision or model: they need a GPU of 8.0 or newer, bf16 or fp16, and packed attention"
        )
    elif is_resharded:
        obstacle = "--parallel fsdp with --reshard: it frees the weights that they read"
    elif config.compile:
        obstacle = "--compile True: these layers are not compiled"
    if obstacle is not None:
        raise ConfigError(f"kernels=True does not fit {obstacle}; use --kernels False, or change that")


def keep_compiled(cache: Path) -> None:
    """Let compiled code be kept where the next start finds it, unless the environment names another place.

    Args:
        cache: directory of the home for what can be made again.
    """
    # torch writes its own default, which may not outlast a job, into the environment when parts of it are imported.
    if os.environ.get(_OF_TORCH) == os.fspath(Path(default_cache_dir()).absolute()):
        del os.environ[_OF_TORCH]
    os.environ.setdefault(_OF_TORCH, os.fspath(cache / "compiled"))
    os.environ.setdefault(_OF_TRITON, os.fspath(cache / "triton"))


def compile_layers(model: nn.Module) -> None:
    """Compile each encoder layer of a model, bare or wrapped, in place; all share one piece of code."""
    # Its cuts at DDP's buckets are for whole models; a layer is smaller than they are meant for.
    torch._dynamo.config.optimize_ddp = False
    for layer in encoder_layers(model):
        layer.compile(dynamic=True)
