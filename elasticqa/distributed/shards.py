"""What a rank holds of a tensor that is spread over the ranks."""

from torch import Tensor
from torch.distributed.tensor import DTensor


def local_part(tensor: Tensor) -> Tensor:
    """Return this rank's shard, without a copy; of a tensor that is not spread, all of it."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
