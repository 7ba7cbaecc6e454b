"""The trainer with memory for few tokens on the last rank: run by test_hangs.py on real ranks."""

import os
import sys

import torch
from torch import Tensor

from elasticqa.data.micro_batch import MicroBatch
from elasticqa.training import builder, main
from elasticqa.training.train_step import TrainStep

TOKENS_VARIABLE = "TEST_TOKENS"


class ShortOfMemory(TrainStep):
    """Runs out of memory like a GPU: while the other ranks wait for this rank's part of the weights."""

    def backward(self, batch: MicroBatch, num_features: int | Tensor) -> Tensor:
        is_last = self.topology.rank == self.topology.world_size - 1
        # The pass before the first step, on placeholder features, fits.
        if is_last and bool(batch.weights.any()) and len(batch.input_ids) > int(os.environ[TOKENS_VARIABLE]):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().backward(batch, num_features)


if __name__ == "__main__":
    builder.TrainStep = ShortOfMemory  # type: ignore[attr-defined]
    sys.exit(main.main())
