"""Which shortcuts a run takes on its devices: the flash kernel, torch.compile, CUDA graphs."""

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from elasticqa.attention import has_flash
from elasticqa.config import Precision, TrainConfig
from elasticqa.errors import ConfigError
from elasticqa.fused import fuse
from elasticqa.model import ModelSpec, encoder_layers
from elasticqa.parallel import DTYPES
from elasticqa.topology import Topology

WORTHWHILE_STEPS = 500
"""Steps from which on compiling, some tens of seconds without a warm cache, is paid back."""


@dataclass(frozen=True)
class Acceleration:
    """The shortcuts in use: ``attention`` is ``flash``, ``sdpa`` (both packed) or ``padded``."""

    attention: str
    is_compiled: bool
    is_captured: bool


def accelerate(
    config: TrainConfig, topology: Topology, spec: ModelSpec, precision: Precision, num_steps: int
) -> Acceleration:
    """Return the shortcuts that were asked for, or those that pay.

    Args:
        config: of the run.
        topology: of this attempt.
        spec: of the model.
        precision: in use.
        num_steps: of the run.

    Raises:
        ConfigError: CUDA graphs were asked for and cannot hold a step of this run.
    """
    attention = "padded"
    if spec.is_packed:
        is_flash = config.attention != "sdpa" and has_flash(topology.device, DTYPES[precision])
        attention = "flash" if is_flash else "sdpa"
    obstacle = _obstacle_to_capture(config, topology, spec)
    if config.cuda_graphs and obstacle is not None:
        raise ConfigError(f"cuda_graphs=True does not fit {obstacle}; leave --cuda-graphs out, or change that")
    pays = attention == "flash"
    is_captured = pays and obstacle is None if config.cuda_graphs is None else config.cuda_graphs
    is_compiled = pays and num_steps >= WORTHWHILE_STEPS if config.compile is None else config.compile
    return Acceleration(attention, is_compiled=is_compiled, is_captured=is_captured)


def _obstacle_to_capture(config: TrainConfig, topology: Topology, spec: ModelSpec) -> str | None:
    if topology.device.type != "cuda":
        return "a CPU"
    if not spec.is_packed:
        return f"padded attention (model type {spec.model_type!r}, --attention {config.attention})"
    if config.parallel == "fsdp":
        return "--parallel fsdp: it gathers parameters anew in every step"
    if config.activation_checkpointing:
        return "--activation-checkpointing: it reads the random state, which a capture forbids"
    return None


def compile_layers(model: nn.Module, acceleration: Acceleration, cache: Path) -> None:
    """Compile each encoder layer in place; all share one piece of code.

    Args:
        model: bare or wrapped.
        acceleration: in use.
        cache: directory in which the next start finds the compiled code.
    """
    # torch.compile reads the place of its cache from the environment only.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.fspath(cache))
    # Its cuts at DDP's buckets are for whole models; a layer is smaller than they are meant for.
    torch._dynamo.config.optimize_ddp = False
    if acceleration.attention == "flash":
        fuse(model)
    for layer in encoder_layers(model):
        layer.compile(dynamic=True)
