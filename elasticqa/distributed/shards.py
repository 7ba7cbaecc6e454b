"""The local part of a tensor that is sharded over the ranks."""

from torch import Tensor
from torch.distributed.tensor import DTensor


def local_part(tensor: Tensor) -> Tensor:
    """Return this rank's shard, or the whole tensor if it is not sharded; without a copy."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
