"""Parallelize a model over ranks: DDP replicates it, FSDP shards it. No other module branches on the strategy."""

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from elasticqa.config.train_config import Parallel, Precision
from elasticqa.distributed.topology import Topology
from elasticqa.distributed.torch_internals import ignore_buffers_in_ddp
from elasticqa.models.question_answering import encoder_layers

DTYPES: dict[Precision, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


def parallelize(
    model: nn.Module, parallel: Parallel, topology: Topology, precision: Precision, *, is_resharded: bool = True
) -> nn.Module:
    """Return the model on this rank's device, replicated (DDP) or sharded (FSDP); every rank must call this.

    With ``is_resharded``, FSDP frees a layer's gathered weights after its forward pass.

    Raises:
        ConfigError: the strategy is FSDP and the model has no list of layers to shard.
    """
    model = model.to(topology.device)
    if parallel == "fsdp":
        return _shard(model, topology, precision, is_resharded=is_resharded)
    if parallel == "none" or not topology.is_distributed:
        return model
    # Keep DDP from broadcasting the buffers before every forward pass: they are constants (position ids).
    ignore_buffers_in_ddp(model)
    return DistributedDataParallel(
        model,
        device_ids=[topology.device.index] if topology.device.type == "cuda" else None,
        gradient_as_bucket_view=True,
    )


def _shard(model: nn.Module, topology: Topology, precision: Precision, *, is_resharded: bool) -> nn.Module:
    mesh = init_device_mesh(topology.device.type, (topology.world_size,))
    # Gather parameters in the compute dtype (half the bytes); reduce gradients in fp32.
    policy = MixedPrecisionPolicy(
        param_dtype=None if precision == "fp32" else DTYPES[precision], reduce_dtype=torch.float32
    )
    for layer in encoder_layers(model):
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=is_resharded)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=is_resharded)
    return model


def set_gradient_sync(model: nn.Module, is_synced: bool) -> None:
    """Set whether DDP reduces gradients in the next backward pass; FSDP always does."""
    if isinstance(model, DistributedDataParallel):
        model.require_backward_grad_sync = is_synced


def free_gathered_weights(model: nn.Module) -> None:
    """Make FSDP gather weights again in the next forward pass.

    Call this after an evaluation: without a backward pass, FSDP (with ``reshard`` off) keeps the gathered weights,
    which are outdated after the next update by a CUDA graph.
    """
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def is_sharded(model: nn.Module) -> bool:
    """Whether FSDP shards the parameters over the ranks."""
    return isinstance(model, FSDPModule)
