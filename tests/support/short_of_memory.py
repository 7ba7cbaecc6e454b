"""The trainer on ranks of which the last has memory for so many tokens only: run by test_hang.py on real ranks."""

import os
import sys

import torch
from torch import Tensor

from elasticqa.data.micro_batch import MicroBatch
from elasticqa.training import builder, main
from elasticqa.training.train_step import EagerTrainStep

TOKENS_VARIABLE = "TEST_TOKENS"


class ShortEngine(EagerTrainStep):
    """Runs out of memory where a GPU would: while the others wait for this rank's part of the weights."""

    def backward(self, batch: MicroBatch, num_features: int | Tensor) -> Tensor:
        is_last = self.topology.rank == self.topology.world_size - 1
        # The pass before the first step, of a stand-in, has room.
        if is_last and bool(batch.weights.any()) and len(batch.input_ids) > int(os.environ[TOKENS_VARIABLE]):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().backward(batch, num_features)


if __name__ == "__main__":
    builder.EagerTrainStep = ShortEngine  # type: ignore[attr-defined]
    sys.exit(main.main())
