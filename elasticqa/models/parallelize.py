"""The only branch on parallelism: how a model is spread over the ranks."""

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from elasticqa.config.train_config import Parallel, Precision
from elasticqa.distributed.shards import local_part
from elasticqa.distributed.topology import Topology
from elasticqa.models.question_answering import encoder_layers

DTYPES: dict[Precision, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


def parallelize(
    model: nn.Module, parallel: Parallel, topology: Topology, precision: Precision, *, is_resharded: bool = True
) -> nn.Module:
    """Return the model on its device, replicated or sharded; every rank must call this.

    Args:
        model: on any device.
        parallel: the strategy.
        topology: of this attempt.
        precision: in use.
        is_resharded: FSDP frees a layer's gathered weights after its forward pass.

    Raises:
        ConfigError: the model has no list of layers that could be sharded.
    """
    if parallel == "none":
        return model.to(topology.device)
    if parallel == "fsdp":
        return _shard(model, topology, precision, is_resharded=is_resharded)
    model = model.to(topology.device)
    if not topology.is_distributed:
        return model
    # Buffers are constants (position ids): without this they are sent around before every forward pass.
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(
        model, [name for name, _ in model.named_buffers()]
    )
    return DistributedDataParallel(
        model,
        device_ids=[topology.device.index] if topology.device.type == "cuda" else None,
        gradient_as_bucket_view=True,
    )


def _shard(model: nn.Module, topology: Topology, precision: Precision, *, is_resharded: bool) -> nn.Module:
    mesh = init_device_mesh(topology.device.type, (topology.world_size,))
    # Parameters are gathered in the compute dtype (half the bytes), gradients are summed in fp32.
    policy = MixedPrecisionPolicy(
        param_dtype=None if precision == "fp32" else DTYPES[precision], reduce_dtype=torch.float32
    )
    model = model.to(topology.device)
    for layer in encoder_layers(model):
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=is_resharded)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=is_resharded)
    return model


def set_gradient_sync(model: nn.Module, is_exchanged: bool) -> None:
    """Let the next backward pass exchange gradients, or not (DDP); FSDP reduces in each, to stay sharded."""
    if isinstance(model, DistributedDataParallel):
        model.require_backward_grad_sync = is_exchanged


def free_gathered(model: nn.Module) -> None:
    """Let FSDP gather weights anew for the next pass.

    Where it keeps them until a backward pass, a pass without one leaves them; an update by a replayed graph, of which
    FSDP does not know, makes them old.
    """
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def local_parameter_bytes(model: nn.Module) -> int:
    """Return the bytes of parameters that this rank holds between steps."""
    total = 0
    for parameter in model.parameters():
        total += local_part(parameter).nbytes
    return total


def is_sharded(model: nn.Module) -> bool:
    """Whether parameters are spread over the ranks."""
    return isinstance(model, FSDPModule)
